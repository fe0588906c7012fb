//! Results of one run of either program, parsed from its JSON output.

use serde::Deserialize;

/// Supported version of the documents.
const SCHEMA_VERSION: u32 = 1;

/// One run. The rates of the peer have no copy to compare with.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    schema_version: Option<u32>,
    pub(crate) ops_per_s: f64,
    pub(crate) gb_per_s: f64,
    /// Rate of the fastest plain copy of operations of this size on this CPU, measured just before the run.
    copy_gb_per_s: Option<f64>,
    /// CPU time of all threads divided by wall time in the throughput run; 2 if no other program took CPU time.
    pub(crate) busy_cpus: f64,
    verified: bool,
    pub(crate) p50_ns: Option<f64>,
    pub(crate) p99_ns: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    pub(crate) cpu_ns_per_op: Option<f64>,
}

#[derive(Deserialize)]
struct Document {
    schema_version: u32,
    results: Vec<Record>,
}

/// Reasons why a program's output cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("unexpected output: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error("the output has schema version {0}, but this task supports version {SCHEMA_VERSION}")]
    Version(u32),
    #[error("the output lacks a result, or the rate of a plain copy, or a latency: build fpgactl again")]
    NoResult,
    #[error("the copied data differs from the source, so the figure is not valid")]
    Differs,
}

impl Record {
    /// Parses a line of the peer.
    pub(crate) fn of_peer(text: &[u8]) -> Result<Self, RecordError> {
        let found: Self = serde_json::from_slice(text)?;
        found.clone().checked(found.schema_version.unwrap_or(0))
    }

    fn checked(mut self, version: u32) -> Result<Self, RecordError> {
        if version != SCHEMA_VERSION {
            return Err(RecordError::Version(version));
        }
        self.p50_ns = self.p50_ns.or(self.p50_us.map(|us| us * 1e3));
        self.p99_ns = self.p99_ns.or(self.p99_us.map(|us| us * 1e3));
        if self.verified { Ok(self) } else { Err(RecordError::Differs) }
    }

    /// Rate divided by that of a plain copy, if that was measured.
    pub(crate) fn copy_share(&self) -> Option<f64> {
        self.copy_gb_per_s.filter(|copy| *copy > 0.0).map(|copy| self.gb_per_s / copy)
    }
}

/// Parses all results of a document of `fpgactl dma bench`.
pub(crate) fn rows(text: &[u8]) -> Result<Vec<Record>, RecordError> {
    let document: Document = serde_json::from_slice(text)?;
    document.results.into_iter().map(|row| row.checked(document.schema_version)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"schema_version":1,"card":"mock:0","results":[{"size":64,"direction":"h2c","ops_per_s":8e7,"gb_per_s":5,"copy_gb_per_s":10,"busy_cpus":1.98,"verified":true,"p50_us":0.11,"p99_us":0.18,"p999_us":0.5,"cpu_ns_per_op":7.5}]}"#;
    const PEER: &str = r#"{"schema_version":1,"dpdk":"DPDK 22.11.11","size":64,"ops_per_s":7951456,"busy_cpus":1.98,"verified":true,"p50_ns":1162,"p99_ns":1422,"p999_ns":3195,"cpu_ns_per_op":95.28}"#;

    #[test]
    fn record_outputs_of_both_programs_are_parsed() {
        let ours = rows(DOCUMENT.as_bytes()).unwrap().remove(0);
        assert_eq!((ours.ops_per_s, ours.copy_share(), ours.cpu_ns_per_op), (8e7, Some(0.5), Some(7.5)));
        assert!((ours.p50_ns.unwrap() - 110.0).abs() < 1e-9);
        let peer = Record::of_peer(PEER.as_bytes()).unwrap();
        assert_eq!((peer.ops_per_s, peer.copy_share(), peer.p99_ns), (7_951_456.0, None, Some(1422.0)));
    }

    #[test]
    fn record_unusable_output_is_refused() {
        for (text, part) in [
            ("EAL: no memory".to_owned(), "unexpected"),
            (PEER.replace("_version\":1", "_version\":2"), "version 2"),
            (PEER.replace("true", "false"), "differs"),
        ] {
            let error = Record::of_peer(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
