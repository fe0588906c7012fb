//! Sample: the state of the target, and the changes since the previous sample.

use fpga_diag::inspect::Inspect as _;
use std::collections::BTreeMap;

use fpga_diag::inspect::ReceiveCounters;
use fpga_driver::Card;
use fpga_pci::AccessCounters;
use fpga_rdma::EndpointCounters;
use fpga_registers::xdma::{ChannelBlock, channel_base};
use serde::Serialize;

use super::target::MonitorTarget;
use crate::commands::inspect::{
    EscapeReport, ListingSource, OpsReport, QueuesReport, RegistryReport, StatsReport,
};
use crate::error::CliError;
use crate::target::Opened;
use crate::units::micros;

/// Content of one sample. Rates are per second of the card's clock, which is virtual on a simulated card.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// Number of the sample, from 1.
    #[serde(rename = "look")]
    pub(super) snapshot: u64,
    /// Time since the first sample, by the card's clock.
    pub(super) time_us: f64,
    /// Time since the previous sample; 0 in the first one, which has no rates.
    pub(super) span_us: f64,
    /// Completed transfers of the load; `null` without a load.
    pub(super) transfers: Option<u64>,
    /// Acknowledged payload of the load, as if every packet were full.
    pub(super) goodput_gb_per_s: Option<f64>,
    /// The card, or sender and receiver.
    pub(super) ends: Vec<CardSnapshot>,
    pub(super) trouble: Vec<Warning>,
    /// This and the following tables are `null` for a card without a network interface.
    pub(super) ops: Option<OpsReport>,
    pub(super) queues: Option<QueuesReport>,
    pub(super) registry: Option<RegistryReport>,
    pub(super) escape: Option<EscapeReport>,
    pub(super) stats: Option<StatsReport>,
}

impl Snapshot {
    /// Value of the graph over time: goodput, or the DMA rate of the card, in MB/s.
    pub(super) fn headline(&self) -> Option<u64> {
        let dma = || self.ends.first()?.rates.as_ref()?.dma_gb_per_s;
        let rate = self.goodput_gb_per_s.or_else(dma)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate, for a picture of eight steps"
        )]
        let rate = (rate * 1e3).clamp(0.0, 1e12) as u64;
        Some(rate)
    }
}

/// One card.
#[derive(Debug, Serialize)]
pub(super) struct CardSnapshot {
    pub(super) card: String,
    pub(super) role: &'static str,
    pub(super) channels: Vec<Channel>,
    /// `null` in the first sample, and if there is nothing to count.
    pub(super) rates: Option<Rates>,
}

/// One DMA channel, by its registers.
#[derive(Debug, Serialize)]
pub(super) struct Channel {
    pub(super) name: String,
    /// `running`, `waiting` (started and idle), `stopped`, `error` (by the status register) or `gone`.
    pub(super) state: &'static str,
    /// Descriptors completed since the engine was last started.
    pub(super) completed: u32,
    pub(super) status: String,
    /// Decoded status.
    pub(super) decoded: String,
}

/// Events per second.
#[derive(Debug, Default, Serialize)]
pub(super) struct Rates {
    pub(super) packets_in_per_s: Option<f64>,
    pub(super) packets_out_per_s: Option<f64>,
    pub(super) acks_per_s: Option<f64>,
    /// This and the following rates exist only if the card counts, as simulated ones do.
    pub(super) dma_gb_per_s: Option<f64>,
    pub(super) descriptors_per_s: Option<f64>,
    pub(super) interrupts_per_s: Option<f64>,
    pub(super) mmio_reads_per_s: Option<f64>,
    pub(super) mmio_writes_per_s: Option<f64>,
}

/// Condition that should not occur, or only rarely.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Warning {
    pub(super) card: String,
    pub(super) what: &'static str,
    /// `error`, or `notice` for conditions that a bad network explains.
    pub(super) level: &'static str,
    /// Count since the counter was reset.
    pub(super) count: u64,
    /// Count since the previous sample.
    pub(super) new: u64,
}

/// Counters of one end at some sample.
#[derive(Clone, Default)]
struct CounterSample {
    interface: Option<ReceiveCounters>,
    driver: Option<EndpointCounters>,
    accesses: Option<AccessCounters>,
}

/// Previous counters, from which rates are computed.
#[derive(Default)]
pub(super) struct Sampler {
    samples: u64,
    first: u64,
    last: u64,
    acknowledged: u64,
    counted: Vec<CounterSample>,
    trouble: BTreeMap<(String, &'static str), u64>,
}

/// One end of the target.
struct CardHistory<'a> {
    opened: &'a Opened,
    role: &'static str,
    counted: CounterSample,
}

impl Sampler {
    /// Samples `target`.
    pub(super) fn sample(&mut self, target: &MonitorTarget) -> Result<Snapshot, CliError> {
        let (seen, now, acknowledged, transfers) = match target {
            MonitorTarget::Load(ListingSource::Load(load)) => {
                let [sending, receiving] = load.ends();
                let counted =
                    |endpoint: &fpga_rdma::Endpoint, card: &Card| -> Result<CounterSample, CliError> {
                        Ok(CounterSample {
                            interface: Some(endpoint.tables().counters()?),
                            driver: Some(endpoint.counters()),
                            accesses: card.counters(),
                        })
                    };
                let seen = vec![
                    CardHistory {
                        counted: counted(sending.1, &sending.0.card)?,
                        opened: sending.0,
                        role: "sender",
                    },
                    CardHistory {
                        counted: counted(receiving.1, &receiving.0.card)?,
                        opened: receiving.0,
                        role: "receiver",
                    },
                ];
                (seen, load.now.get(), Some(load.acknowledged_in_all()), Some(load.ended))
            }
            MonitorTarget::Card { opened, tables } => {
                let interface = match tables {
                    Some(ListingSource::Card { tables, .. }) => Some(tables.counters()?),
                    _ => None,
                };
                let counted = CounterSample { interface, driver: None, accesses: opened.card.counters() };
                (vec![CardHistory { opened, role: "card", counted }], opened.now(), None, None)
            }
            MonitorTarget::Load(ListingSource::Card { .. }) => (Vec::new(), 0, None, None),
        };
        self.samples += 1;
        if self.samples == 1 {
            (self.first, self.last) = (now, now);
        }
        let span_ns = now.saturating_sub(self.last);
        let rate = |more: u64| float(more) / (float(span_ns) / 1e9);
        let goodput = acknowledged.filter(|_| span_ns > 0);
        let goodput_gb_per_s = goodput.map(|now| rate(now.saturating_sub(self.acknowledged)) / 1e9);
        let mut ends = Vec::with_capacity(seen.len());
        let mut trouble = Vec::new();
        for (number, seen) in seen.iter().enumerate() {
            let before = self.counted.get(number).filter(|_| span_ns > 0);
            let rates = before.map(|before| Rates::between(before, &seen.counted, rate));
            let channels = channels(&seen.opened.card);
            let card = seen.opened.card.name();
            self.add_warnings(card, &seen.counted, &mut trouble);
            for channel in channels.iter().filter(|channel| matches!(channel.state, "error" | "gone")) {
                trouble.push(Warning {
                    card: format!("{card} {}", channel.name),
                    what: if channel.state == "gone" { "does not answer" } else { "error bits" },
                    level: "error",
                    count: 1,
                    new: 0,
                });
            }
            ends.push(CardSnapshot { card: card.to_owned(), role: seen.role, channels, rates });
        }
        self.counted = seen.into_iter().map(|seen| seen.counted).collect();
        self.acknowledged = acknowledged.unwrap_or(0);
        let time_us = micros(now.saturating_sub(self.first));
        self.last = now;
        let scene = match target {
            MonitorTarget::Load(scene) => Some(scene),
            MonitorTarget::Card { tables, .. } => tables.as_ref(),
        };
        Ok(Snapshot {
            snapshot: self.samples,
            time_us,
            span_us: micros(span_ns),
            transfers,
            goodput_gb_per_s,
            ends,
            trouble,
            ops: scene.map(OpsReport::new).transpose()?,
            queues: scene.map(QueuesReport::new),
            registry: scene.map(RegistryReport::new).transpose()?,
            escape: scene.map(EscapeReport::new).transpose()?,
            stats: scene.map(StatsReport::new).transpose()?,
        })
    }

    fn add_warnings(&mut self, card: &str, counted: &CounterSample, all: &mut Vec<Warning>) {
        for (what, level, count) in counted.warnings() {
            let before = self.trouble.insert((card.to_owned(), what), count).unwrap_or(0);
            if count > 0 {
                // A 32-bit counter may have wrapped.
                let new = count.saturating_sub(before);
                all.push(Warning { card: card.to_owned(), what, level, count, new });
            }
        }
    }
}

impl CounterSample {
    /// Conditions that should not occur, errors first.
    fn warnings(&self) -> Vec<(&'static str, &'static str, u64)> {
        let (error, notice) = ("error", "notice");
        let mut all = Vec::new();
        if let Some(driver) = &self.driver {
            let sender = &driver.sender;
            all.extend([
                ("transfers failed", error, sender.failed),
                ("faults that the interface reported", error, driver.faults),
                ("overruns of the copy engine", error, driver.chain_overruns),
                ("reads refused", error, driver.reads_refused),
                ("packets retransmitted", notice, sender.retransmits),
                ("time-outs", notice, sender.timeouts),
                ("busy answers", notice, sender.busy),
                ("refusals", notice, sender.refused),
            ]);
        }
        if let Some(interface) = &self.interface {
            all.extend([
                ("packets outside every memory window", error, interface.violations.into()),
                ("malformed packets", error, interface.bad_packet.into()),
                ("registry entries expired", error, interface.expired.into()),
                ("damaged packets", notice, interface.bad_crc.into()),
                ("packets that the escape channel dropped", notice, interface.escape_dropped.into()),
                ("segments refused, registry full", notice, interface.registry_full.into()),
                ("duplicate packets", notice, interface.duplicates.into()),
            ]);
        }
        all.sort_by_key(|(_, level, _)| *level != error);
        all
    }
}

impl Rates {
    fn between(before: &CounterSample, after: &CounterSample, rate: impl Fn(u64) -> f64) -> Self {
        let mut rates = Self::default();
        if let (Some(before), Some(after)) = (&before.interface, &after.interface) {
            // 32-bit registers, which wrap.
            let of = |after: u32, before: u32| Some(rate(after.wrapping_sub(before).into()));
            rates.packets_in_per_s = of(after.rx_packets, before.rx_packets);
            rates.packets_out_per_s = of(after.tx_packets, before.tx_packets);
            rates.acks_per_s = of(after.acks_sent, before.acks_sent);
        }
        if let (Some(before), Some(after)) = (&before.accesses, &after.accesses) {
            let of = |after: u64, before: u64| rate(after.saturating_sub(before));
            rates.dma_gb_per_s = Some(of(after.dma_bytes, before.dma_bytes) / 1e9);
            rates.descriptors_per_s = Some(of(after.descriptors, before.descriptors));
            rates.interrupts_per_s = Some(of(after.interrupts, before.interrupts));
            rates.mmio_reads_per_s = Some(of(after.mmio_reads, before.mmio_reads));
            rates.mmio_writes_per_s = Some(of(after.mmio_writes, before.mmio_writes));
        }
        rates
    }
}

/// All channels of a card. A channel that cannot be read is shown as such: the others may still be useful.
fn channels(card: &Card) -> Vec<Channel> {
    let info = &card.info().xdma;
    info.channels()
        .map(|name| {
            let bar = card.dma_bar();
            let base = channel_base(name.direction, name.number);
            let read = || {
                let control = ChannelBlock::CONTROL.read(bar, base)?;
                let status = ChannelBlock::STATUS.read(bar, base)?;
                Ok::<_, fpga_pci::MmioError>((control, status, ChannelBlock::COMPLETED.read(bar, base)?))
            };
            let gone = |decoded: String| Channel {
                name: name.to_string(),
                state: "gone",
                completed: 0,
                status: "-".to_owned(),
                decoded,
            };
            match read() {
                Err(error) => gone(error.to_string()),
                Ok((_, status, u32::MAX)) if status.into_bits() == u32::MAX => {
                    gone("reads as all ones".to_owned())
                }
                Ok((control, status, completed)) => Channel {
                    name: name.to_string(),
                    state: match (status.has_error(name.direction), control.run(), status.busy()) {
                        (true, ..) => "error",
                        (_, true, true) => "running",
                        (_, true, false) => "waiting",
                        (_, false, true) => "stopping",
                        (_, false, false) => "stopped",
                    },
                    completed,
                    status: format!("{:#010x}", status.into_bits()),
                    decoded: words(&status.describe(name.direction).to_string()),
                },
            }
        })
        .collect()
}

/// Decoded status without the raw word.
fn words(decoded: &str) -> String {
    // Error groups without an error are omitted.
    decoded.split(' ').skip(1).filter(|field| !field.ends_with("=none")).collect::<Vec<_>>().join(" ")
}

#[expect(clippy::cast_precision_loss, reason = "rates are shown with a few digits")]
const fn float(value: u64) -> f64 {
    value as f64
}
