//! Opening of the backend that a card's name stands for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fpga_pci::vfio::{VfioBackend, VfioOpenError, VfioOptions};
use fpga_pci::{Backend, PciAddress};
use fpga_vfio_user::{ConnectError, VfioUserBackend, VfioUserOpenError, VfioUserOptions};

use crate::error::{At as _, CardPart, Error, ErrorPlace, OpenError};
#[cfg(feature = "sim")]
use crate::error::{Cause, CauseClass};
use crate::owner::{self, SharedSocket};
use crate::range::CardRange;
use crate::simulation::Simulation;
use crate::spec::{AccessOptions, CardSpec};

impl AccessOptions {
    fn open_pci(&self, address: PciAddress) -> Result<VfioBackend, VfioOpenError> {
        let mut options = VfioOptions::from_environment()?;
        options.interface = self.vfio.unwrap_or(options.interface);
        options.vf_token = self.vf_token.or(options.vf_token);
        VfioBackend::open_with(&address.to_string(), options)
    }

    /// Opens the card `name` behind `socket`.
    fn open_socket(&self, socket: &Path, name: &CardSpec) -> Result<VfioUserBackend, OpenError> {
        let options = VfioUserOptions::default().deadline(self.limit()?);
        let backend = VfioUserBackend::open_with(socket, options)?;
        Ok(backend.named(name.to_string()))
    }

    /// Maximum time for a message to another process, and for its answer.
    fn limit(&self) -> Result<Duration, VfioUserOpenError> {
        self.message_timeout
            .map_or_else(|| VfioUserOptions::from_environment().map(|options| options.deadline), Ok)
    }
}

/// Backend of a card, and the range of its memory, if its description has one.
type Reached = (Arc<dyn Backend>, Option<CardRange>);

impl CardSpec {
    /// Opens the card's backend, which leaves the card as it is. [`Card::from_backend`](crate::Card::from_backend) opens the card behind it;
    /// an observer (package `fpga-diag`) can be put between the two.
    ///
    /// # Errors
    /// [`OpenError::Cause`], [`OpenError::Cause`], [`OpenError::Cause`], [`OpenError::NoSimulator`],
    /// [`OpenError::Cause`], [`OpenError::Cause`].
    pub fn backend(&self, access: &AccessOptions) -> Result<Arc<dyn Backend>, Error<OpenError>> {
        self.reach(access).map(|(backend, _)| backend)
    }

    /// The card's backend, and where its memory is if the card's description tells.
    pub(crate) fn reach(&self, access: &AccessOptions) -> Result<Reached, Error<OpenError>> {
        let reach = || -> Result<Reached, OpenError> {
            if let Some(backend) = self.through_owner(access)? {
                return Ok((backend, None));
            }
            match self {
                Self::Pci(address) => Ok((Arc::new(access.open_pci(*address)?), None)),
                Self::VfioUser(socket) => Ok((Arc::new(access.open_socket(socket, self)?), None)),
                Self::Rtl(folder) => {
                    let open = |socket: &Path| access.open_socket(socket, self);
                    let (simulation, backend) = Simulation::start(folder, open, has_no_server)?;
                    Ok((Arc::new(backend.with_server(simulation)), rtl_memory(folder)?))
                }
                Self::Shared(card) => {
                    let open = |socket: &Path| access.open_socket(socket, self);
                    let limit = access.limit()?;
                    Ok((Arc::new(owner::connected(card, access, limit, open, has_no_server)?), None))
                }
                Self::Simulated { description } => simulate(description.as_deref()),
            }
        };
        reach().at(|| ErrorPlace::new(self.to_string().into(), CardPart::Card))
    }

    /// Opens a card outside this process through its owner, if it has one.
    fn through_owner(&self, access: &AccessOptions) -> Result<Option<Arc<dyn Backend>>, OpenError> {
        if !matches!(self, Self::Pci(_) | Self::VfioUser(_)) {
            return Ok(None);
        }
        let socket = SharedSocket::of(self);
        if !socket.exists() {
            return Ok(None);
        }
        // Not waited for: this process may be the owner that an opener, which holds the lock, has started.
        let _turn = socket.try_lock()?;
        match access.open_socket(socket.path(), self) {
            Ok(backend) => Ok(Some(Arc::new(backend))),
            Err(error) if has_no_server(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns whether an attempt to connect failed because no server listens.
fn has_no_server(error: &OpenError) -> bool {
    let OpenError::Cause(cause) = error else { return false };
    matches!(
        cause.get(),
        Some(VfioUserOpenError::Connect(ConnectError::Missing { .. } | ConnectError::NotListening { .. }))
    )
}

/// Memory of an RTL simulation, if its card file tells.
#[cfg(feature = "sim")]
fn rtl_memory(folder: &Path) -> Result<Option<CardRange>, OpenError> {
    let file = folder.join(crate::simulation::CARD);
    if !file.is_file() {
        return Ok(None);
    }
    let stated = fpga_sim::CardDescription::stated_memory(&file);
    let stated = stated.map_err(simulated)?;
    Ok(stated.map(|(base, size)| CardRange::new(fpga_registers::CardAddr::new(base), size)))
}

#[cfg(not(feature = "sim"))]
fn rtl_memory(_: &Path) -> Result<Option<CardRange>, OpenError> {
    Ok(None)
}

#[cfg(feature = "sim")]
fn simulate(description: Option<&Path>) -> Result<Reached, OpenError> {
    use fpga_registers::CardAddr;
    use fpga_sim::{CardDescription, SimNetwork};

    let card = description.map(CardDescription::find).transpose().map_err(simulated)?;
    let card = card.unwrap_or_default();
    let memory = CardRange::new(CardAddr::new(card.memory.base), card.memory.size);
    let network = SimNetwork::builder().card(card).build().map_err(simulated)?;
    Ok((network.backend(0), Some(memory)))
}

#[cfg(not(feature = "sim"))]
fn simulate(_: Option<&Path>) -> Result<Reached, OpenError> {
    Err(OpenError::NoSimulator)
}

#[cfg(feature = "sim")]
fn simulated(error: impl std::error::Error + Send + Sync + 'static) -> OpenError {
    OpenError::Cause(Cause::new(CauseClass::Refused, None, error))
}
