//! Cards that this process has opened. A card that belongs to one process is opened once: its further messengers are ports of the first one.

use crate::error::{MessengerError, card_error};
use crate::messenger::CardMessenger;
use crate::options::MessengerOptions;
use fpga_driver::CardSpec;
use std::sync::{Arc, Mutex, PoisonError, Weak};

struct OpenCard {
    spec: CardSpec,
    /// After a fork, the child must not use the cards of its parent.
    process: u32,
    card: Weak<Mutex<CardMessenger>>,
}

static OPEN_CARDS: Mutex<Vec<OpenCard>> = Mutex::new(Vec::new());

/// Returns the card of the options, which is opened unless this process has done so.
pub(crate) fn open(options: &MessengerOptions) -> Result<Arc<Mutex<CardMessenger>>, MessengerError> {
    let spec: CardSpec = options.card.parse().map_err(card_error)?;
    if matches!(spec, CardSpec::Simulated { .. } | CardSpec::Shared(_)) {
        return Ok(Arc::new(Mutex::new(CardMessenger::open(options)?)));
    }
    // Held while the card is opened: another thread may open the same one.
    let mut cards = OPEN_CARDS.lock().unwrap_or_else(PoisonError::into_inner);
    cards.retain(|open| open.card.strong_count() > 0);
    let process = std::process::id();
    let known = cards.iter().find(|open| open.spec == spec && open.process == process);
    if let Some(card) = known.and_then(|open| open.card.upgrade()) {
        return Ok(card);
    }
    let card = CardMessenger::open(options)?;
    let is_view = card.is_view();
    let card = Arc::new(Mutex::new(card));
    if !is_view {
        cards.push(OpenCard { spec, process, card: Arc::downgrade(&card) });
    }
    Ok(card)
}
