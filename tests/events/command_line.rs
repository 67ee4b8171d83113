//! The command line: what is wrong is named, before anything is asked.

use rstest::rstest;

use crate::stage::Stage;
use crate::verb::events;

#[rstest]
#[case(&["--types", "jugded"], "\"jugded\" is no type of events; they are started, stopping, judged")]
#[case(&["--since", "yesterday"], "\"yesterday\": give a duration such as 10m, or an instant")]
#[case(&["--for", "5"], "\"5\" is no duration")]
#[case(&["--for", "5s", "--no-follow"], "cannot be used with")]
#[case(&["--until", "over:healed"], "only acted:OUTCOME and judged:VERDICT take a second word")]
#[case(&["-o", "yaml"], "invalid value 'yaml'")]
#[case(&["--port", "0"], "invalid value '0'")]
#[case(&["--via", "nodeport"], "invalid value 'nodeport'")]
#[case(&["-l", "a=b,"], "invalid value 'a=b,'")]
#[case(&["--node", "-n"], "a value is required")]
#[tokio::test]
async fn a_wrong_command_line(#[case] args: &[&str], #[case] why: &str) {
    let stage = Stage::new(0).await;
    let said = events(&stage, args).await;
    assert_eq!(said.code, Some(2), "{}{}", said.out, said.err);
    assert!(said.err.contains(why), "no {why:?} in {}", said.err);
    assert!(stage.cluster.api().requests().is_empty());
}
