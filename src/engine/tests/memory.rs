//! Which sightings are one and the same, and how long each is kept.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;

use super::observe::{self, attachment};
use super::telling::ip;
use crate::domain::{EndpointId, EndpointState, Holder};
use crate::engine::memory::Memory;

fn now() -> Timestamp {
    "2026-06-18T10:00:00Z".parse().unwrap()
}

fn after(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn holder(number: i64, container: char) -> Holder {
    let attachment = attachment(container, "eth0");
    Holder { id: EndpointId(number), attachment, ..observe::holder() }
}

fn without_container() -> Holder {
    Holder { attachment: None, ..holder(1, 'a') }
}

#[rstest]
#[case::itself(ip(), holder(1, 'a'), true)]
#[case::itself_in_another_state(ip(), Holder { state: EndpointState::Disconnecting, ..holder(1, 'a') }, true)]
#[case::on_another_address("10.0.2.8".parse().unwrap(), holder(1, 'a'), false)]
#[case::another_number(ip(), holder(2, 'a'), false)]
#[case::another_container_on_its_number(ip(), holder(1, 'b'), false)]
#[case::no_container_to_compare(ip(), without_container(), false)]
fn a_holder_is_known_since_its_first_sight(
    #[case] other_ip: IpAddr,
    #[case] other: Holder,
    #[case] is_the_same: bool,
) {
    let mut memory = Memory::default();
    assert_eq!(memory.first_seen(ip(), &holder(1, 'a')), None);
    memory.saw(ip(), &holder(1, 'a'), now());
    memory.saw(other_ip, &other, after(60));
    assert_eq!(memory.first_seen(ip(), &holder(1, 'a')), Some(now()));
    assert_eq!(memory.first_seen(other_ip, &other), Some(if is_the_same { now() } else { after(60) }));
}

#[test]
fn a_sighting_is_kept_for_less_than_a_day() {
    const DAY: i64 = 24 * 60 * 60;
    let (mut memory, first) = (Memory::default(), holder(1, 'a'));
    memory.saw(ip(), &first, now());
    memory.saw(ip(), &holder(2, 'a'), after(DAY - 1));
    assert_eq!(memory.first_seen(ip(), &first), Some(now()));
    memory.saw(ip(), &holder(3, 'a'), after(DAY));
    assert_eq!(memory.first_seen(ip(), &first), None);
    assert_eq!(memory.first_seen(ip(), &holder(2, 'a')), Some(after(DAY - 1)));
    // Seen again, it is as new.
    memory.saw(ip(), &first, after(DAY + 1));
    assert_eq!(memory.first_seen(ip(), &first), Some(after(DAY + 1)));
}

#[test]
fn of_too_many_the_oldest_goes_first() {
    const MOST: i64 = 1024;
    let mut memory = Memory::default();
    // The oldest is neither the first nor the last that was told.
    let seen_at = |number: i64| after(if number == 500 { -1 } else { number });
    let saw = |memory: &mut Memory, number| memory.saw(ip(), &holder(number, 'a'), seen_at(number));
    let unknown = |memory: &Memory, upto: i64| -> Vec<i64> {
        (0..upto).filter(|number| memory.first_seen(ip(), &holder(*number, 'a')).is_none()).collect()
    };
    (0..MOST).for_each(|number| saw(&mut memory, number));
    assert_eq!(unknown(&memory, MOST), [0; 0]);
    saw(&mut memory, MOST);
    assert_eq!(unknown(&memory, MOST + 1), [500]);
    saw(&mut memory, MOST + 1);
    assert_eq!(unknown(&memory, MOST + 2), [0, 500]);
}
