//! The quick suite: the real binary, as a process, against the simulated cluster.
//!
//! Needs a Rust toolchain only. Below is what it tells, each line a test; `together` says why they run at once.
#![cfg(feature = "sim")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy.toml allows them in functions that are tests, and these serve nothing else"
)]
#![allow(missing_docs, unreachable_pub, reason = "nothing outside uses a test")]

mod access;
mod agent_faults;
mod api_faults;
mod bounds;
mod command_line;
mod crash;
#[path = "../support/daemon.rs"]
mod daemon;
mod http;
mod load;
mod observe;
mod odd_events;
mod pace;
mod people;
mod protection;
mod refused;
mod reserved;
mod restart_agent;
mod scene;
mod shutdown;
mod stale;
mod stream;
mod telling;
mod together;

/// The scenarios by module. One that is not listed is dead code, and the lints say so.
macro_rules! contents {
    ($($module:ident { $($name:ident,)+ })+) => {
        fn contents() -> Vec<(&'static str, together::Scenario)> {
            vec![$($((
                concat!(stringify!($module), "::", stringify!($name)),
                (|| Box::pin($module::$name())) as together::Scenario,
            )),+),+]
        }

        mod it {
            $(mod $module {
                $(#[test]
                fn $name() {
                    crate::together::outcome(concat!(stringify!($module), "::", stringify!($name)));
                })+
            })+
        }
    };
}

/// The name that libtest gives to the test of a scenario.
fn test_name(scenario: &str) -> String {
    format!("it::{scenario}")
}

// Those that take long begin first.
contents! {
    restart_agent {
        a_phantom_holder_leads_to_one_restart,
        a_hidden_holder_leads_to_one_restart_and_a_second_one_to_none,
        killed_in_a_restart_it_makes_no_second_one,
        without_the_remedy_a_history_is_only_told,
        on_a_cordoned_node_the_agent_is_not_restarted,
        during_a_rollout_the_agent_is_not_restarted,
        an_agent_that_is_opted_out_is_not_restarted,
        while_another_node_restarts_its_agent_this_one_waits,
        a_pause_stops_a_restart,
        where_the_fence_does_not_let_it_the_agent_stays,
    }
    crash {
        killed_at_any_instant_it_does_nothing_twice_and_heals_in_the_end,
        a_torn_ledger_is_set_aside_and_nothing_is_done,
        a_second_process_does_nothing_until_the_first_is_gone,
        without_a_directory_for_the_ledger_nothing_is_done,
    }
    protection {
        without_a_fence_nothing_is_done_and_everybody_is_told,
        a_fence_that_is_not_required_is_missed_aloud,
        a_right_too_many_counts_as_no_protection,
        a_right_too_few_counts_as_no_protection,
        reviews_that_are_not_answered_leave_it_unknown,
        a_fence_that_comes_later_lets_it_heal,
        an_account_that_may_not_delete_pods_disconnects_without_a_fence,
        an_account_that_may_delete_pods_and_need_not_has_a_right_too_many,
        a_token_of_another_node_counts_as_no_protection,
        a_token_that_names_no_node_counts_as_no_protection,
        the_simulated_rights_are_those_of_the_manifests,
    }
    people {
        healing_ends_with_its_time,
        a_pause_stops_all_acts_is_told_once_and_its_end_resumes,
        a_label_on_the_pod_opts_it_out,
        a_label_on_its_namespace_opts_a_pod_out,
        a_label_on_the_owners_namespace_opts_its_endpoint_out,
        an_opt_out_that_says_false_is_none,
        a_denied_namespace_is_left_alone,
        a_namespace_that_is_not_allowed_is_left_alone,
        a_system_pod_is_moved_only_where_its_namespace_is_allowed,
        a_namespace_that_may_not_be_read_holds_back,
        an_owners_namespace_that_cannot_be_read_holds_back,
        an_own_namespace_that_cannot_be_read_holds_back,
        an_own_namespace_that_is_not_there_holds_back,
    }
    bounds {
        a_spent_budget_sets_the_pace,
        acts_that_do_not_help_open_the_breaker,
        leases_that_others_hold_hold_back_until_one_is_free,
        what_was_moved_once_is_remembered_over_a_restart,
        an_unknown_version_of_cilium_is_only_observed,
        an_unknown_version_of_cilium_is_healed_where_that_is_allowed,
    }
    observe {
        observe_mode_writes_nothing_and_says_once_that_it_holds_back,
        a_live_duplicate_watched_for_several_polls_is_one_line,
    }
    reserved {
        a_replicas_pod_on_the_ingress_address_is_moved_once,
        a_statefulset_that_gets_the_address_again_is_moved_once_and_then_told,
        a_pod_without_controller_is_told_only,
        a_pod_on_the_health_address_is_never_disconnected,
    }
    agent_faults {
        a_delete_answered_503_is_tried_again_later_each_time,
        an_unreadable_configuration_withholds_the_disconnect,
        a_look_up_answered_429_is_agent_unknown,
        a_look_up_answered_503_is_agent_unknown,
        a_look_up_answered_403_is_agent_unknown,
        a_look_up_that_hangs_is_agent_unknown,
        a_look_up_with_half_a_body_is_agent_unknown,
        a_look_up_answered_with_garbage_is_agent_unknown,
        a_look_up_answered_404_by_the_router_is_agent_unknown,
        an_agent_that_is_stopped_is_agent_unknown,
        unreadable_allocations_abort_the_disconnect,
        an_address_that_another_pod_has_in_the_ipam_aborts_the_disconnect,
        a_delete_answered_206_heals,
        a_pod_that_gets_no_sandbox_after_the_disconnect_is_not_healed,
        a_delete_whose_answer_comes_too_late_heals_and_is_told_once,
        a_delete_that_takes_effect_late_heals_and_is_told_once,
        a_delete_answered_429_fails_and_heals_when_it_is_over,
        a_delete_answered_403_fails_and_heals_when_it_is_over,
        a_delete_answered_400_fails_and_heals_when_it_is_over,
        a_delete_answered_404_is_not_believed,
        an_agent_that_restarts_between_judgement_and_act_is_settling,
    }
    api_faults {
        the_api_server_stops_and_comes_back,
        an_unreadable_owner_is_insufficient_evidence,
        unreadable_users_of_the_address_are_insufficient_evidence,
        an_unreadable_ciliumnode_is_insufficient_evidence,
        unreadable_events_are_insufficient_evidence,
        an_owner_that_can_be_read_again_is_healed,
        a_pod_that_is_malformed_is_skipped_and_counted,
        a_pod_whose_metadata_are_malformed_is_skipped_and_counted,
        a_watch_that_is_cut_resumes,
        a_watch_from_a_version_too_old_lists_anew,
        a_pod_replaced_during_its_deletion_stays,
        a_pod_replaced_between_judgement_and_act_stays,
        an_owner_that_appears_between_judgement_and_act_keeps_its_endpoint,
    }
    stale {
        left_behind_on_1_14,
        left_behind_on_1_18,
        left_behind_on_1_20,
        nameless_on_1_20,
        previous_incarnation_of_a_statefulset_pod,
        earlier_sandbox_of_the_wedged_pod,
        owner_that_has_ended,
    }
    refused {
        the_owner_runs,
        the_owner_is_pending_without_an_address,
        two_wedges_and_only_the_stale_one_is_healed,
    }
    odd_events { messages_that_are_no_refusal_lead_to_no_act, }
    load { a_node_where_nothing_is_wrong_costs_next_to_nothing, }
    pace {
        ten_seconds_from_the_event_to_the_disconnect_with_default_settings,
        no_act_within_the_startup_quiet_period,
    }
    shutdown {
        sigterm_while_idle,
        sigterm_while_a_disconnect_hangs_abandons_it_and_says_so,
        sigterm_lets_a_disconnect_in_hand_end,
        a_second_sigterm_ends_it_at_once,
    }
    stream {
        a_heal_is_streamed_as_it_happens_and_the_stream_ends_with_the_daemon,
        what_is_kept_can_be_read_and_narrowed,
        a_reader_that_comes_back_to_another_process_is_told_of_the_gap,
        a_thousand_clients_get_their_places_or_are_sent_away,
    }
    telling {
        a_heal_is_told_on_the_pod_its_controller_and_the_node,
        a_refusal_is_told_once_and_names_the_owner,
        each_line_that_the_documentation_quotes_is_logged,
    }
    access {
        over_loopback_all_is_open,
        elsewhere_a_page_is_closed_unless_the_flag_says_otherwise,
        with_auth_none_elsewhere_reads_and_changes_nothing,
        a_token_reads_what_its_user_may_read,
        while_the_api_server_cannot_be_asked_no_token_reads,
        the_log_level_changes_and_goes_back,
    }
    http {
        all_pages_of_a_healthy_daemon,
        an_absent_socket_directory_is_said_and_survived,
        metrics_start_at_zero,
    }
    command_line {
        no_node_name,
        wrong_values_name_their_flag,
        wrong_values_of_the_environment_name_their_flag,
        a_kubeconfig_that_is_not_there,
        a_kubeconfig_that_is_garbage,
        a_port_in_use,
        the_environment_stands_in_for_flags,
        each_flag_has_a_twin_in_the_environment_and_each_duration_a_unit,
    }
}
