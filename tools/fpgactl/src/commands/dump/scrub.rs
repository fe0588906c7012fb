//! Replacement of private data in a bundle by the name of its kind, such as `<ip>`.
//!
//! Two rules apply:
//!
//! * Words that identify this machine (host name, user names, home directory) are replaced everywhere.
//! * Addresses, identifiers and paths are recognized by their form. Public data of the same form is replaced, too: a version number of four
//!   parts looks like an IP address.
//!
//! Paths below the kernel's trees (`/proc`, `/sys`, ...) stay, because findings name them, and so do the settings folders in the advice.

use std::net::{Ipv4Addr, Ipv6Addr};

use fpga_host::Roots;

/// Kinds of data that a bundle does not contain, as listed at the head of the bundle and in the command's output.
pub(super) const OMITTED: &[&str] = &[
    "host name",
    "user names",
    "paths outside of /dev, /lib/modules, /proc, /sys and four folders of /etc that the doctor names",
    "serial numbers",
    "MAC and IP addresses",
    "UUIDs",
];

/// Directories whose paths are not replaced: the kernel's trees and folders with its settings.
const PUBLIC: [&str; 8] = [
    "/dev",
    "/lib/modules",
    "/proc",
    "/sys",
    "/etc/modprobe.d",
    "/etc/modules-load.d",
    "/etc/security/limits.d",
    "/etc/sysctl.d",
];
/// First user id of human users (Debian Policy 9.2.2).
const FIRST_USER_ID: u32 = 1000;
/// Users that every system has; their names reveal nothing.
const SYSTEM_USERS: [&str; 2] = ["root", "nobody"];

/// Scrubber that replaces private data.
#[derive(Debug, Default)]
pub(super) struct Scrub {
    /// Sorted by length, longest first: a home directory is replaced before the user name in it.
    words: Vec<(String, &'static str)>,
}

impl Scrub {
    /// Creates a scrubber with the names of this machine and its users.
    pub(super) fn of_this_machine(roots: &Roots) -> Self {
        let mut scrub = Self::default();
        let host = std::fs::read_to_string(roots.proc.join("sys/kernel/hostname")).unwrap_or_default();
        scrub.add(host.trim(), "<host>");
        scrub.add(host.trim().split('.').next().unwrap_or_default(), "<host>");
        for variable in ["USER", "LOGNAME", "SUDO_USER"] {
            scrub.add_user(&std::env::var(variable).unwrap_or_default());
        }
        if let Ok(home) = std::env::var("HOME") {
            scrub.add(home.trim_end_matches('/'), "<path>");
        }
        // The kernel's trees may be below another root directory (tests). Its path is private, and its `etc/passwd` lists the users.
        let root = roots.proc.parent().map(|root| root.display().to_string()).unwrap_or_default();
        scrub.add(root.trim_end_matches('/'), "");
        let users =
            std::fs::read_to_string(roots.proc.with_file_name("etc").join("passwd")).unwrap_or_default();
        for user in users.lines() {
            let mut fields = user.split(':');
            let (name, id) =
                (fields.next().unwrap_or_default(), fields.nth(1).and_then(|id| id.parse().ok()));
            if id.is_some_and(|id: u32| id >= FIRST_USER_ID) {
                scrub.add_user(name);
            }
        }
        scrub
    }

    fn add_user(&mut self, name: &str) {
        if !SYSTEM_USERS.contains(&name) {
            self.add(name, "<user>");
        }
    }

    /// Adds `word` to the words to replace. Words of one or two letters are ignored: replacing them would make the text unreadable.
    pub(super) fn add(&mut self, word: &str, by: &'static str) {
        if word.len() < 3 || self.words.iter().any(|(known, _)| known == word) {
            return;
        }
        self.words.push((word.to_owned(), by));
        self.words.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
    }

    /// Returns `text` without private data.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut clean: Vec<String> = text.lines().map(|line| self.clean_line(line)).collect();
        if text.ends_with('\n') {
            clean.push(String::new());
        }
        clean.join("\n")
    }

    fn clean_line(&self, line: &str) -> String {
        let mut line = without_serial(line);
        for (word, by) in &self.words {
            line = replaced(&line, word, by);
        }
        let mut clean = String::with_capacity(line.len());
        let mut word = String::new();
        for letter in line.chars() {
            if letter.is_whitespace() || "\"'`()[]{},;=|".contains(letter) {
                clean += &by_form(&word);
                word.clear();
                clean.push(letter);
            } else {
                word.push(letter);
            }
        }
        clean + &by_form(&word)
    }
}

/// Replaces `word` where it is a whole word: a user `all` does not affect `allocated`.
fn replaced(line: &str, word: &str, by: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(word) {
        let (before, after) =
            (rest.get(..at).unwrap_or_default(), rest.get(at + word.len()..).unwrap_or_default());
        let joined =
            |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
        clean += before;
        let whole = !joined(before.chars().next_back()) && !joined(after.chars().next());
        clean += if whole { by } else { word };
        rest = after;
    }
    clean + rest
}

/// Replaces the word after `serial number`, `serialnumber` or `S/N` in any case.
fn without_serial(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let end = |name: &str| lower.find(name).map(|at| at + name.len());
    // ASCII lower case keeps the byte offsets.
    let Some(end) = end("serial number").or_else(|| end("serialnumber")).or_else(|| end("s/n")) else {
        return line.to_owned();
    };
    let (before, after) = line.split_at(end);
    let value = after.trim_start_matches([' ', ':', '=', '#']);
    let gap = after.len() - value.len();
    if gap == 0 || value.is_empty() {
        return line.to_owned();
    }
    let rest = value.find([' ', ',']).map_or("", |at| value.get(at..).unwrap_or_default());
    format!("{before}{}<serial number>{rest}", after.get(..gap).unwrap_or_default())
}

/// Returns the word, or its replacement if its form is private.
fn by_form(word: &str) -> String {
    // Strips surrounding punctuation. The unstripped word is tried first: an address may begin or end with colons.
    let core = word.trim_start_matches(['<', '>']).trim_end_matches(['.', ':', '!', '?', '<', '>']);
    let Some((found, what)) = [word, core].into_iter().find_map(|text| Some((text, form(text)?))) else {
        return word.to_owned();
    };
    word.replacen(found, what, 1)
}

/// Returns the replacement for a word that has the form of private data.
fn form(word: &str) -> Option<&'static str> {
    let hex =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts = |separator: char| word.split(separator).collect::<Vec<_>>();
    if parts('-').iter().zip([8, 4, 4, 4, 12]).filter(|(part, length)| hex(part, *length)).count() == 5 {
        return Some("<uuid>");
    }
    for separator in [':', '-'] {
        let parts = parts(separator);
        if parts.iter().all(|part| hex(part, 2)) && (6..=8).contains(&parts.len()) {
            return Some(if parts.len() == 6 { "<mac>" } else { "<serial number>" });
        }
    }
    // Strips a port or a prefix length.
    let host = word.split_once('/').map_or(word, |(host, _)| host);
    let host =
        host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(host, _)| host);
    if host.parse::<Ipv4Addr>().is_ok()
        || (word.contains("::") && host.parse::<Ipv6Addr>().is_ok())
        || word.parse::<Ipv6Addr>().is_ok()
    {
        return Some("<ip>");
    }
    // A path may have a prefix, such as `vfio-user:` in vfio-user:/run/card.
    let begins = word.find('/')?;
    let before = word.get(..begins).and_then(|before| before.chars().next_back());
    let path = word.get(begins..)?;
    let is_path = before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '.' && letter != '~');
    let named = path.len() > 2 && path.get(1..2).is_some_and(|letter| letter != "/");
    let is_in =
        |tree: &str| path.strip_prefix(tree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let public = PUBLIC.into_iter().any(is_in) && !path.contains("..");
    // Path of the user: ~/x, ./x.
    let relative = matches!(before, Some('~' | '.'));
    ((is_path && named && !public) || relative).then_some("<path>")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scrub_private_words_are_named_by_kind() {
        let mut scrub = Scrub::default();
        scrub.add("mallory", "<user>");
        scrub.add("box.example.org", "<host>");
        scrub.add("box", "<host>");
        scrub.add("ab", "<user>");
        for (text, clean) in [
            ("mallory on box.example.org, box; boxes, abc", "<user> on <host>, <host>; boxes, abc"),
            ("52:54:00:12:34:56 at 0000:65:00.0 and 65:00.0", "<mac> at 0000:65:00.0 and 65:00.0"),
            ("from 10.0.0.1:7000 to [::1] and fe80::2.", "from <ip> to [<ip>] and <ip>."),
            ("UUID=123e4567-e89b-12d3-a456-426614174000", "UUID=<uuid>"),
            ("'/srv/data/x', ~/y (./z)", "'<path>', <path> (<path>)"),
            ("vfio-user:/run/a.sock", "<path>"),
            ("/dev/vfio/14, /sys/kernel/iommu_groups", "/dev/vfio/14, /sys/kernel/iommu_groups"),
            ("/sys/../srv/x", "<path>"),
            ("this /dev, /devices/x, /system/y", "this /dev, <path>, <path>"),
            ("a file in /etc/sysctl.d, /etc/hosts", "a file in /etc/sysctl.d, <path>"),
            ("GB/s, ops/s, 3/256 and a / b", "GB/s, ops/s, 3/256 and a / b"),
            ("Serial Number: AB12, and more", "Serial Number: <serial number>, and more"),
            ("00-0a-35-ff-ff-12-34-56", "<serial number>"),
            ("serial port", "serial port"),
            ("0x1fc00006 8.0 GT/s x16 10ee:903f", "0x1fc00006 8.0 GT/s x16 10ee:903f"),
            ("a\n\nb\n", "a\n\nb\n"),
        ] {
            assert_eq!(scrub.clean(text), clean);
        }
    }

    proptest! {
        #[test]
        fn scrub_any_text_does_not_panic_or_leak(text in "\\PC*", other in "\\PC*") {
            let mut scrub = Scrub::default();
            scrub.add("mallory", "<user>");
            let clean = scrub.clean(&format!("{text} mallory {other}"));
            prop_assert!(!clean.split(' ').any(|word| word == "mallory"), "{clean}");
        }

        #[test]
        fn scrub_clean_text_is_unchanged(text in "[a-z =,.]*") {
            prop_assume!(!text.contains("serial"));
            prop_assert_eq!(Scrub::default().clean(&text), text);
        }
    }
}
