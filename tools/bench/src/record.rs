//! Results of one run of either program, parsed from its JSON output.

use serde::{Deserialize, Serialize};

use super::cpu_sample::CpuSample;

/// Supported version of the documents.
const SCHEMA_VERSION: u32 = 1;

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) ops_per_s: f64,
    /// CPU time of all threads divided by wall time in the throughput run; 2 if no other program took CPU time.
    pub(crate) busy_cpus: f64,
    pub(crate) latency: Option<Latency>,
    pub(crate) cpu_ns_per_op: Option<f64>,
}

/// CPU time of one run of one program, with samples of the CPUs before and after it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) looks: [CpuSample; 2],
    pub(super) ns_per_op: f64,
}

/// Latency of one operation at a time, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) p999_ns: f64,
}

/// Reasons why a program's output cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// The output is not the expected JSON.
    #[error("unexpected output: {0}")]
    Syntax(#[from] serde_json::Error),
    /// The document has another version.
    #[error("the output has schema version {0}, but this task supports version {SCHEMA_VERSION}")]
    Version(u32),
    /// The number of results is not one.
    #[error("the output has {0} results instead of 1")]
    Results(usize),
    /// The memory had wrong content.
    #[error("the copied data differs from the source, so the figure is not valid")]
    Differs,
}

#[derive(Deserialize)]
struct Peer {
    schema_version: u32,
    ops_per_s: f64,
    busy_cpus: f64,
    verified: bool,
    p50_ns: Option<f64>,
    p99_ns: Option<f64>,
    p999_ns: Option<f64>,
    cpu_ns_per_op: Option<f64>,
}

#[derive(Deserialize)]
struct Document {
    schema_version: u32,
    results: Vec<DriverRecord>,
}

#[derive(Deserialize)]
struct DriverRecord {
    ops_per_s: f64,
    busy_cpus: f64,
    verified: bool,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    cpu_ns_per_op: Option<f64>,
}

impl Record {
    /// Parses a line of the peer.
    pub(crate) fn of_peer(text: &[u8]) -> Result<Self, RecordError> {
        let found: Peer = serde_json::from_slice(text)?;
        check(found.schema_version, found.verified)?;
        Ok(Self {
            ops_per_s: found.ops_per_s,
            busy_cpus: found.busy_cpus,
            latency: latency([found.p50_ns, found.p99_ns, found.p999_ns], 1.0),
            cpu_ns_per_op: found.cpu_ns_per_op,
        })
    }

    /// Parses a document of `fpgactl dma bench` with one result.
    pub(crate) fn of_ours(text: &[u8]) -> Result<Self, RecordError> {
        let document: Document = serde_json::from_slice(text)?;
        let [found] = document.results.as_slice() else {
            return Err(RecordError::Results(document.results.len()));
        };
        check(document.schema_version, found.verified)?;
        Ok(Self {
            ops_per_s: found.ops_per_s,
            busy_cpus: found.busy_cpus,
            latency: latency([found.p50_us, found.p99_us, found.p999_us], 1e3),
            cpu_ns_per_op: found.cpu_ns_per_op,
        })
    }
}

fn check(version: u32, verified: bool) -> Result<(), RecordError> {
    if version != SCHEMA_VERSION {
        return Err(RecordError::Version(version));
    }
    if verified { Ok(()) } else { Err(RecordError::Differs) }
}

fn latency(parts: [Option<f64>; 3], scale: f64) -> Option<Latency> {
    let [p50, p99, p999] = parts;
    Some(Latency { p50_ns: p50? * scale, p99_ns: p99? * scale, p999_ns: p999? * scale })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_peer_line_is_parsed() {
        let line = br#"{"schema_version":1,"dpdk":"DPDK 22.11.11","size":64,"ops_per_s":7951456,"busy_cpus":1.98,"verified":true,"p50_ns":1162,"p99_ns":1422,"p999_ns":3195,"cpu_ns_per_op":95.28}"#;
        let record = Record::of_peer(line).unwrap();
        assert_eq!((record.ops_per_s, record.busy_cpus), (7_951_456.0, 1.98));
        assert_eq!(record.latency, Some(Latency { p50_ns: 1162.0, p99_ns: 1422.0, p999_ns: 3195.0 }));
        assert_eq!(record.cpu_ns_per_op, Some(95.28));
        let short =
            Record::of_peer(br#"{"schema_version":1,"ops_per_s":5,"busy_cpus":1.98,"verified":true}"#)
                .unwrap();
        assert_eq!((short.latency, short.cpu_ns_per_op), (None, None));
    }

    #[test]
    fn record_own_document_is_parsed() {
        let text = br#"{"schema_version":1,"card":"mock:0","results":[{"size":64,"ops_per_s":8e7,"busy_cpus":1.98,"verified":true,"p50_us":0.11,"p99_us":0.18,"p999_us":0.5,"cpu_ns_per_op":7.5}]}"#;
        let record = Record::of_ours(text).unwrap();
        assert_eq!((record.ops_per_s, record.cpu_ns_per_op), (8e7, Some(7.5)));
        assert!((record.latency.unwrap().p50_ns - 110.0).abs() < 1e-9);
    }

    #[test]
    fn record_unusable_output_is_refused() {
        for (text, part) in [
            (&b"{}"[..], "unexpected"),
            (b"EAL: no memory", "unexpected"),
            (br#"{"schema_version":2,"ops_per_s":5,"busy_cpus":1.98,"verified":true}"#, "version 2"),
            (br#"{"schema_version":1,"ops_per_s":5,"busy_cpus":1.98,"verified":false}"#, "differs"),
        ] {
            let error = Record::of_peer(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let error = Record::of_ours(br#"{"schema_version":1,"results":[]}"#).unwrap_err().to_string();
        assert!(error.contains("0 results"), "{error}");
    }
}
