//! Advice about errors of the packages below the driver, where the command line has its own words for what to do.

use std::borrow::Cow;

use fpga_driver::errors::Cause;
use fpga_host::bind::BindError;
use fpga_host::{Fix, Hint, HostError};
use fpga_pci::vfio::VfioOpenError;
use fpga_protocol::sender::SendFailure;
use fpga_vfio_user::VfioUserOpenError;
use fpga_vfio_user::socket::ConnectError;

/// Advice about a machine that cannot be examined, or a function that does not exist.
pub(crate) fn host(error: &HostError) -> Option<Cow<'static, str>> {
    match error {
        HostError::NoSuchFunction { hint: Hint::Nothing, .. } => Some(
            "list the functions: fpgactl list --all; or scan the bus again: echo 1 > /sys/bus/pci/rescan"
                .into(),
        ),
        other => other.help(),
    }
}

/// Advice about a card that could not be bound or released.
pub(crate) fn bind(error: &BindError) -> Option<Cow<'static, str>> {
    match error {
        BindError::Host(inner) => host(inner),
        BindError::NotACard { .. } => {
            Some("if it is your card, add --force: its present driver loses it".into())
        }
        BindError::NoIommu { .. } | BindError::NoIommuMode { .. } => {
            Some("run `fpgactl doctor` for advice".into())
        }
        BindError::Failed { address, outcome: fpga_host::bind::Outcome::NotRestored { .. }, .. } => {
            Some(format!("return it to its driver: fpgactl release {address}").into())
        }
        other => other.help(),
    }
}

/// Advice about a card that could not be opened through VFIO, or whose server was not found.
pub(crate) fn open(cause: &Cause) -> Option<Cow<'static, str>> {
    if let Some(VfioUserOpenError::Connect(ConnectError::Missing { path })) = cause.get() {
        return Some(
            format!(
                "start the server first (fpgactl card serve --socket {}), or check the path",
                path.display()
            )
            .into(),
        );
    }
    match cause.get()? {
        VfioOpenError::WrongDriver { address, .. } => Some(format!("bind it: fpgactl bind {address}").into()),
        VfioOpenError::NoIommuGroup { .. } | VfioOpenError::NoIommuMode { .. } => {
            Some("run `fpgactl doctor` for advice".into())
        }
        VfioOpenError::Busy { .. } => Some("end the other program: a device has one user at a time".into()),
        VfioOpenError::VfToken { given: false, .. } => Some(
            "give the token that the physical function was opened with: --vf-token or FPGA_VF_TOKEN".into(),
        ),
        _ => None,
    }
}

/// Advice about a transfer between cards that failed.
pub(crate) fn transfer(failure: &SendFailure) -> Option<Cow<'static, str>> {
    match failure {
        SendFailure::Superseded { .. } => Some(
            "run the command again: it starts with a later incarnation; check that no other node has this node id"
                .into(),
        ),
        other => other.help(),
    }
}

/// Action that makes a check of the machine pass.
pub(crate) fn fix(fix: &Fix) -> String {
    match fix {
        Fix::Bind(address) => format!("fpgactl bind {address} (fpgactl release {address} undoes it)"),
        Fix::BindGroup(others) => {
            let others: Vec<_> = others.iter().map(ToString::to_string).collect();
            format!("fpgactl bind {}, or use a slot with a separate group", others.join("; fpgactl bind "))
        }
        Fix::StopEngines => "after a fault, stop the engines with `fpgactl reset`, or restart the machine".to_owned(),
        Fix::ShareToken => "give both programs the same UUID: --vf-token or FPGA_VF_TOKEN".to_owned(),
        Fix::FindCard => "check its power and its bitstream, then echo 1 > /sys/bus/pci/rescan; name a card with other ids (fpgactl list --all) by --card".to_owned(),
        other => other.to_string(),
    }
}
