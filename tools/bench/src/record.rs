//! Results of one run of either program, parsed from its JSON output.

use serde::Deserialize;

use super::cpu_sample::CpuSample;

/// Supported version of the documents.
const SCHEMA_VERSION: u32 = 1;

/// One run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Record {
    pub(crate) ops_per_s: f64,
    pub(crate) gb_per_s: f64,
    /// Rate of the fastest plain copy of operations of this size on this CPU, measured just before the run; only of this project's program.
    pub(crate) copy_gb_per_s: Option<f64>,
    /// CPU time of all threads divided by wall time in the throughput run; 2 if no other program took CPU time.
    pub(crate) busy_cpus: f64,
    pub(crate) latency: Option<Latency>,
    pub(crate) cpu_ns_per_op: Option<f64>,
}

/// CPU time of one run of one program, with samples of the CPUs before and after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Run {
    pub(super) looks: [CpuSample; 2],
    pub(super) ns_per_op: f64,
}

/// Latency of one operation at a time, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
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
    size: u64,
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
    copies: Option<Copies>,
    results: Vec<DriverRecord>,
}

/// Copy routines that the program chose by measuring.
#[derive(Deserialize)]
struct Copies {
    choices: Vec<CopyChoice>,
}

/// Fastest copy routine for one length and kind of pages.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct CopyChoice {
    pub(crate) pages: String,
    pub(crate) length: u64,
    pub(crate) routine: String,
}

#[derive(Deserialize)]
struct DriverRecord {
    size: u64,
    direction: ResultDirection,
    ops_per_s: f64,
    gb_per_s: f64,
    copy_gb_per_s: Option<f64>,
    busy_cpus: f64,
    verified: bool,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    cpu_ns_per_op: Option<f64>,
}

/// Direction of a result; `both` in runs that have both at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ResultDirection {
    H2c,
    C2h,
    Both,
}

/// One result of a document with several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ResultRow {
    pub(crate) size: u64,
    pub(crate) direction: ResultDirection,
    pub(crate) record: Record,
}

impl Record {
    /// Parses a line of the peer.
    pub(crate) fn of_peer(text: &[u8]) -> Result<Self, RecordError> {
        let found: Peer = serde_json::from_slice(text)?;
        check(found.schema_version, found.verified)?;
        #[expect(clippy::cast_precision_loss, reason = "sizes are small")]
        let bytes = found.size as f64;
        Ok(Self {
            ops_per_s: found.ops_per_s,
            gb_per_s: found.ops_per_s * bytes / 1e9,
            copy_gb_per_s: None,
            busy_cpus: found.busy_cpus,
            latency: latency([found.p50_ns, found.p99_ns, found.p999_ns], 1.0),
            cpu_ns_per_op: found.cpu_ns_per_op,
        })
    }

    /// Parses a document of `fpgactl dma bench` with one result.
    pub(crate) fn of_ours(text: &[u8]) -> Result<Self, RecordError> {
        match rows(text)?.as_slice() {
            [row] => Ok(row.record),
            rows => Err(RecordError::Results(rows.len())),
        }
    }

    /// Rate divided by that of a plain copy, if that was measured.
    pub(crate) fn copy_share(&self) -> Option<f64> {
        self.copy_gb_per_s.filter(|copy| *copy > 0.0).map(|copy| self.gb_per_s / copy)
    }

    /// 99th percentile of the latency in nanoseconds.
    pub(crate) fn p99_ns(&self) -> Option<f64> {
        self.latency.map(|latency| latency.p99_ns)
    }
}

/// Parses all results of a document of `fpgactl dma bench`.
pub(crate) fn rows(text: &[u8]) -> Result<Vec<ResultRow>, RecordError> {
    let document: Document = serde_json::from_slice(text)?;
    let rows = document.results.into_iter().map(|found| {
        check(document.schema_version, found.verified)?;
        let record = Record {
            ops_per_s: found.ops_per_s,
            gb_per_s: found.gb_per_s,
            copy_gb_per_s: found.copy_gb_per_s,
            busy_cpus: found.busy_cpus,
            latency: latency([found.p50_us, found.p99_us, found.p999_us], 1e3),
            cpu_ns_per_op: found.cpu_ns_per_op,
        };
        Ok(ResultRow { size: found.size, direction: found.direction, record })
    });
    rows.collect()
}

/// Parses the copy routines of a document of `fpgactl dma bench`.
pub(crate) fn copy_choices(text: &[u8]) -> Result<Vec<CopyChoice>, RecordError> {
    let document: Document = serde_json::from_slice(text)?;
    Ok(document.copies.map(|copies| copies.choices).unwrap_or_default())
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

    const DOCUMENT: &[u8] = br#"{"schema_version":1,"card":"mock:0","copies":{"forced":false,"choices":[{"pages":"normal","length":512,"routine":"avx2","measured":[]}]},"results":[{"size":64,"direction":"h2c","ops_per_s":8e7,"gb_per_s":5,"copy_gb_per_s":10,"busy_cpus":1.98,"verified":true,"p50_us":0.11,"p99_us":0.18,"p999_us":0.5,"cpu_ns_per_op":7.5}]}"#;

    #[test]
    fn record_peer_line_is_parsed() {
        let line = br#"{"schema_version":1,"dpdk":"DPDK 22.11.11","size":64,"ops_per_s":7951456,"busy_cpus":1.98,"verified":true,"p50_ns":1162,"p99_ns":1422,"p999_ns":3195,"cpu_ns_per_op":95.28}"#;
        let record = Record::of_peer(line).unwrap();
        assert_eq!((record.ops_per_s, record.busy_cpus), (7_951_456.0, 1.98));
        assert_eq!(record.latency, Some(Latency { p50_ns: 1162.0, p99_ns: 1422.0, p999_ns: 3195.0 }));
        assert_eq!(record.cpu_ns_per_op, Some(95.28));
        let short = Record::of_peer(
            br#"{"schema_version":1,"ops_per_s":5,"size":64,"busy_cpus":1.98,"verified":true}"#,
        )
        .unwrap();
        assert_eq!((short.latency, short.cpu_ns_per_op), (None, None));
    }

    #[test]
    fn record_own_document_is_parsed() {
        let record = Record::of_ours(DOCUMENT).unwrap();
        assert_eq!((record.ops_per_s, record.cpu_ns_per_op), (8e7, Some(7.5)));
        assert!((record.latency.unwrap().p50_ns - 110.0).abs() < 1e-9);
        assert_eq!((record.gb_per_s, record.copy_share()), (5.0, Some(0.5)));
        assert_eq!(rows(DOCUMENT).unwrap()[0].direction, ResultDirection::H2c);
        let choices = copy_choices(DOCUMENT).unwrap();
        assert_eq!((choices[0].length, choices[0].routine.as_str()), (512, "avx2"));
    }

    #[test]
    fn record_without_copy_rate_has_no_share() {
        let text = String::from_utf8_lossy(DOCUMENT).replace("\"copy_gb_per_s\":10,", "");
        let record = Record::of_ours(text.as_bytes()).unwrap();
        assert_eq!(record.copy_share(), None);
    }

    #[test]
    fn record_unusable_output_is_refused() {
        for (text, part) in [
            (&b"{}"[..], "unexpected"),
            (b"EAL: no memory", "unexpected"),
            (
                br#"{"schema_version":2,"size":64,"ops_per_s":5,"busy_cpus":1.98,"verified":true}"#,
                "version 2",
            ),
            (br#"{"schema_version":1,"size":64,"ops_per_s":5,"busy_cpus":1.98,"verified":false}"#, "differs"),
        ] {
            let error = Record::of_peer(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let error = Record::of_ours(br#"{"schema_version":1,"results":[]}"#).unwrap_err().to_string();
        assert!(error.contains("0 results"), "{error}");
    }
}
