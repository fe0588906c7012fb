//! The protocol checker finds what it is for.

use std::process::Command;

use crate::simulator::build;

#[test]
fn checker_reports_each_broken_rule() {
    let sources = ["check/axi_checker.sv", "check/broken_master.sv"];
    let Some(program) = build("broken_master", &sources, &[], "rtl-checker") else { return };
    let output = Command::new(program).output().unwrap();
    check_broken_rules(&String::from_utf8(output.stdout).unwrap());
}

/// Checks the output of `broken_master`: after the name of each rule, a report of its violation.
pub(crate) fn check_broken_rules(text: &str) {
    let mut expected = None;
    let mut rules = 0;
    for line in text.lines() {
        if let Some(rule) = line.strip_prefix("expect ") {
            assert_eq!(expected, None, "not reported: {text}");
            expected = Some(rule).filter(|rule| *rule != "none");
            rules += u32::from(expected.is_some());
        } else if line.starts_with("axi_checker broken at") {
            let rule = expected.take().unwrap_or_else(|| panic!("unexpected: {line}\n{text}"));
            assert!(line.ends_with(rule), "{line}, but expected {rule}");
        }
    }
    assert_eq!(expected, None, "not reported: {text}");
    assert!(text.contains(&format!("axi_checker broken: {rules} violations")), "{text}");
    assert_eq!(rules, 9);
}
