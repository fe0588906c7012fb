//! Advice of the library in terms of the command line.
//!
//! Errors of the library name its functions and options, because programs call them. A user of the command line has options instead: before
//! a message is shown, the library's words are replaced by those of [`WORDS`]. A test checks the list against the source of the library.

/// Words of the library and their replacements on the command line. Earlier entries are applied first.
const WORDS: &[(&str, &str)] = &[
    (" (OpenOptions::dma_bar)", " (--dma-bar)"),
    (" (OpenOptions::cdma_offset)", " (--cdma-offset)"),
    (" (OpenOptions::network_interface)", " (--ni)"),
    (" (OpenOptions::observe)", ""),
    ("(Card::h2c_stream, Card::c2h_stream; `fpgactl dma` without --addr)", "(`fpgactl dma` without --addr)"),
    ("take them by Card::h2c and Card::c2h (`fpgactl dma` with --addr)", "use `fpgactl dma` with --addr"),
    (" (Card::buffer)", ""),
    ("call Card::enable_interrupts before taking the channel, or wait by polling", "wait by polling"),
    (
        "call Card::enable_interrupts first, name the user interrupt that the engine is wired to (CdmaRingOptions::user_interrupt) and drop the program's own handle of that line (Card::user_interrupt), or wait by polling",
        "wait by polling",
    ),
    ("; call UserInterrupt::enable before waiting for it", "; enable it first (`fpgactl irq wait` does)"),
    ("ChannelOptions::long_blocks may be set", "programs may use them (option long_blocks of a channel)"),
    ("RunMode::Credit may be used", "credit mode may be used (`dma bench --ring credit`)"),
    ("keep RunMode::Batch (the default)", "do not use credit mode (`dma bench --ring credit`)"),
    ("do not use WaitMode::Hybrid", "do not use hybrid waits (`dma bench --mode hybrid`)"),
    ("WaitMode::Hybrid may be used", "hybrid waits may be used (`dma bench --mode hybrid`)"),
    ("keep ChannelOptions::long_blocks off", "keep the option long_blocks of channels off in programs"),
    (" (recovery::recover)", ""),
    ("use Notify::Receiver", "use --notify receiver"),
    (" (EndpointOptions::event_entries), or send without a notification (Notify::None)", ""),
    (" (EndpointOptions::event_entries)", ""),
    ("open the endpoint with one of them (EndpointOptions::other_schemes)", "choose one of them (--scheme)"),
    ("or open it with that one too (EndpointOptions::other_schemes)", "or choose it, too (--scheme)"),
    (" (EndpointOptions::tuning)", " (--window, --credit, --resend-after)"),
    (" (then state EndpointOptions::source_alignment)", ""),
    (" (EndpointOptions::chain)", ""),
    (" (Endpoint::usable_memory)", " (`fpgactl info` shows it)"),
    (", or lend channels that carry the rest (Cdma::set_bounce_channels)", ""),
    (" (Cdma::set_bounce_channels)", ""),
    (" (Endpoint::wait_peer)", ""),
    (
        "open this endpoint with shorter segments (EndpointOptions::segment_size)",
        "choose shorter segments (--segment)",
    ),
    (" (EndpointOptions::give_up)", ""),
    (" (EndpointOptions::registry_timeout)", ""),
    (
        "name one of these (SendOptions::scheme), or open both endpoints with the same (EndpointOptions)",
        "name one of these (--scheme)",
    ),
    (
        "wait longer, or abort the channel",
        "give more time with --timeout, or stop the engine with `fpgactl reset`",
    ),
    ("drop the endpoint and open it again", "run the command again"),
    ("use more or larger buffers", "give a larger --packet"),
];

/// Returns `text` with the library's words replaced.
#[must_use]
pub(crate) fn to_cli_terms(text: impl Into<String>) -> String {
    WORDS.iter().fold(
        text.into(),
        |text, (library, ours)| {
            if text.contains(library) { text.replace(library, ours) } else { text }
        },
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Packages whose messages reach the command line.
    const SOURCES: [&str; 11] = [
        "driver/src",
        "driver/ring/src",
        "driver/diag/src",
        "firmware-bindings/protocol/src",
        "driver/host/src",
        "driver/pci/src",
        "driver/sim/src",
        "driver/frames/src",
        "firmware-bindings/src",
        "driver/sim/card/src",
        "tools/netsim/src",
    ];

    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.file_name().and_then(|name| name.to_str()) {
                Some("tests" | "tests.rs" | "testing.rs" | "fake.rs") => {}
                _ if path.is_dir() => files(&path, found),
                Some(name) if name.ends_with(".rs") => found.push(path),
                _ => {}
            }
        }
    }

    /// String literals of a source file, without comments, serde attributes and the tests at its end.
    fn literals(source: &str) -> Vec<String> {
        let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines =
            source.lines().filter(|line| !line.trim_start().starts_with("//") && !line.contains("#[serde("));
        let text: Vec<char> = lines.flat_map(|line| line.chars().chain(['\n'])).collect();
        let (mut found, mut at) = (Vec::new(), 0);
        while at < text.len() {
            match (text[at], text.get(at + 1), text.get(at + 2)) {
                ('\'', Some('"'), Some('\'')) => at += 3,
                ('\'', Some('\\'), _) => at += 4,
                ('"', ..) => {
                    let start = at + 1;
                    at = start;
                    while at < text.len() && text[at] != '"' {
                        at += if text[at] == '\\' { 2 } else { 1 };
                    }
                    found.push(text[start..at.min(text.len())].iter().collect());
                    at += 1;
                }
                _ => at += 1,
            }
        }
        found
    }

    /// Returns whether a text contains a Rust path such as `Card::buffer`. An IPv6 address does not count.
    fn has_path(text: &str) -> bool {
        let parts: Vec<&str> = text.split("::").collect();
        parts.windows(2).any(|pair| {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let before = pair[0].rsplit(|c| !is_word(c)).next().and_then(|word| word.chars().next());
            let after = pair[1].chars().next();
            let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            is_letter(before) && is_letter(after)
        })
    }

    #[test]
    fn library_messages_translated_have_no_rust_paths() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (mut found, mut all) = (Vec::new(), String::new());
        SOURCES.iter().for_each(|source| files(&root.join(source), &mut found));
        assert!(found.len() > 100, "{}", found.len());
        for file in found {
            for literal in literals(&fs::read_to_string(&file).unwrap()) {
                if literal == fpga_pci::FAULT_LOG {
                    continue;
                }
                let shown = to_cli_terms(literal.as_str());
                assert!(
                    !has_path(&shown),
                    "{}: {literal:?}: add the equivalent of the command line to WORDS",
                    file.display()
                );
                all += &literal;
                all.push('\n');
            }
        }
        for (library, _) in WORDS {
            assert!(all.contains(library), "no message contains {library:?}: remove it from WORDS");
        }
    }

    #[test]
    fn help_has_no_rust_paths() {
        fn check(mut command: clap::Command) {
            let help = command.render_long_help().to_string();
            assert!(!has_path(&help), "{help}");
            command.get_subcommands().cloned().for_each(check);
        }
        let mut command = <crate::cli::Cli as clap::CommandFactory>::command();
        command.build();
        check(command);
    }

    #[test]
    fn own_messages_have_no_rust_paths() {
        let mut found = Vec::new();
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        for file in found.iter().filter(|file| !file.ends_with("cli_terms.rs")) {
            for literal in literals(&fs::read_to_string(file).unwrap()) {
                assert!(!has_path(&literal), "{}: {literal:?}", file.display());
            }
        }
    }
}
