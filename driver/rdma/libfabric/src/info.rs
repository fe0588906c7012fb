//! Properties of the provider, and the structure that describes them to programs.

use crate::code::Code;
use crate::sys::*;
use crate::vector::ADDRESS_LENGTH;
use core::ffi::{c_char, c_void};
use fpga_messages::{MAX_INJECT, MAX_RANGES};

/// Name of the provider and of its fabric.
pub(crate) const NAME: &str = "fpga";
/// Capabilities that programs ask for.
pub(crate) const PRIMARY: u64 =
    FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_DIRECTED_RECV | FI_TAGGED_DIRECTED_RECV;
/// Directions of messages, and of remote access.
pub(crate) const MESSAGE_DIRECTIONS: u64 = FI_SEND | FI_RECV;
pub(crate) const ACCESS_DIRECTIONS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Secondary capabilities, of which a program may get more than it asks for.
pub(crate) const SECONDARY: u64 = ON_REQUEST | FI_LOCAL_COMM | FI_REMOTE_COMM;
/// Those that cost a lookup at each completion, or completions of their own: only for programs that ask for them.
pub(crate) const ON_REQUEST: u64 = FI_MULTI_RECV | FI_SOURCE | FI_RMA_EVENT;
/// All capabilities.
pub(crate) const CAPS: u64 = PRIMARY | MESSAGE_DIRECTIONS | ACCESS_DIRECTIONS | SECONDARY;
/// Capabilities of the parts of an endpoint, and of domains.
pub(crate) const TX_CAPS: u64 = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
pub(crate) const RX_CAPS: u64 = FI_MSG
    | FI_RMA
    | FI_TAGGED
    | FI_ATOMIC
    | FI_DIRECTED_RECV
    | FI_TAGGED_DIRECTED_RECV
    | FI_RECV
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_MULTI_RECV
    | FI_RMA_EVENT
    | FI_SOURCE;
pub(crate) const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;

/// Flags of operations, as defaults of an endpoint.
pub(crate) const TX_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE
    | FI_MORE;
pub(crate) const RX_FLAGS: u64 = FI_COMPLETION
    | FI_MULTI_RECV
    | FI_MORE
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE;

/// Maximum length of an injected operation.
#[expect(clippy::cast_possible_truncation, reason = "a constant of some thousand bytes")]
pub(crate) const INJECT_SIZE: usize = MAX_INJECT as usize;
/// Maximum length of the operand of an atomic operation: two operands fit into one message.
pub(crate) const MAX_ATOMIC: usize = INJECT_SIZE / 2;
/// Number of operations if the program leaves it open, and its maximum.
pub(crate) const QUEUE_SIZE: usize = 1024;
pub(crate) const MAX_QUEUE_SIZE: usize = 65536;
/// Maximum length of a message: that of an object in memory.
pub(crate) const MAX_MESSAGE: usize = isize::MAX as usize;
pub(crate) const MAX_OBJECTS: usize = 65536;

/// Owned values of one description, from which the structure is made.
pub(crate) struct Description {
    pub(crate) caps: u64,
    pub(crate) tx_caps: u64,
    pub(crate) rx_caps: u64,
    pub(crate) tx_flags: u64,
    pub(crate) rx_flags: u64,
    pub(crate) tx_size: usize,
    pub(crate) rx_size: usize,
    pub(crate) threading: i32,
    pub(crate) control_progress: i32,
    pub(crate) data_progress: i32,
    pub(crate) av_type: i32,
    pub(crate) mr_mode: i32,
    pub(crate) tag_format: u64,
    pub(crate) api_version: u32,
    pub(crate) domain: String,
    pub(crate) source: String,
    pub(crate) destination: Option<String>,
}

impl Default for Description {
    fn default() -> Self {
        Self {
            caps: CAPS & !FI_TAGGED_DIRECTED_RECV & !FI_RMA_EVENT,
            tx_caps: TX_CAPS,
            rx_caps: RX_CAPS & !FI_TAGGED_DIRECTED_RECV & !FI_RMA_EVENT,
            tx_flags: 0,
            rx_flags: 0,
            tx_size: QUEUE_SIZE,
            rx_size: QUEUE_SIZE,
            threading: FI_THREAD_SAFE,
            control_progress: FI_PROGRESS_MANUAL,
            data_progress: FI_PROGRESS_MANUAL,
            // All types: the program chooses one.
            av_type: FI_AV_UNSPEC,
            mr_mode: 0,
            tag_format: FI_TAG_GENERIC,
            api_version: 0,
            domain: String::new(),
            source: String::new(),
            destination: None,
        }
    }
}

/// Zeroed memory that `fi_freeinfo` releases.
fn zeroed<T>() -> Result<*mut T, Code> {
    // SAFETY: calloc has no requirements.
    let memory = unsafe { libc::calloc(1, size_of::<T>()) }.cast::<T>();
    if memory.is_null() { Err(ENOMEM) } else { Ok(memory) }
}

/// Text in memory that `fi_freeinfo` releases, filled up with zeros to `length` bytes, and one zero at least.
fn allocated(text: &str, length: usize) -> Result<*mut c_char, Code> {
    let length = length.max(text.len() + 1);
    // SAFETY: calloc has no requirements.
    let memory = unsafe { libc::calloc(length, 1) }.cast::<u8>();
    if memory.is_null() {
        return Err(ENOMEM);
    }
    // SAFETY: the memory has one byte more than the text.
    unsafe { memory.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    Ok(memory.cast())
}

impl Description {
    /// The structure for a program, which releases it with `fi_freeinfo`.
    pub(crate) fn into_info(self) -> Result<*mut FiInfo, Code> {
        // All parts first: after an error nothing has to be taken apart. An allocation that fails loses those before it.
        let (info, tx, rx) = (zeroed::<FiInfo>()?, zeroed::<FiTxAttr>()?, zeroed::<FiRxAttr>()?);
        let (endpoint, domain, fabric) =
            (zeroed::<FiEpAttr>()?, zeroed::<FiDomainAttr>()?, zeroed::<FiFabricAttr>()?);
        // Programs copy the names of endpoints over these addresses.
        let source = allocated(&self.source, ADDRESS_LENGTH)?;
        let destination =
            self.destination.as_deref().map(|text| allocated(text, ADDRESS_LENGTH)).transpose()?;
        let (fabric_name, domain_name) = (allocated(NAME, 0)?, allocated(&self.domain, 0)?);
        // SAFETY: `zeroed` has returned memory for each structure, zero is a value of all of their fields, and no other code has them yet.
        let (info, tx, rx, endpoint, domain, fabric) =
            unsafe { (&mut *info, &mut *tx, &mut *rx, &mut *endpoint, &mut *domain, &mut *fabric) };
        self.fill_contexts(tx, rx);
        self.fill_endpoint(endpoint);
        self.fill_domain(domain);
        domain.name = domain_name;
        fabric.name = fabric_name;
        fabric.prov_version = crate::provider_version();
        fabric.api_version = self.api_version;
        info.caps = self.caps;
        info.addr_format = FI_ADDR_STR;
        (info.src_addr, info.src_addrlen) = (source.cast::<c_void>(), ADDRESS_LENGTH);
        if let Some(destination) = destination {
            (info.dest_addr, info.dest_addrlen) = (destination.cast::<c_void>(), ADDRESS_LENGTH);
        }
        (info.tx_attr, info.rx_attr, info.ep_attr) = (tx, rx, endpoint);
        (info.domain_attr, info.fabric_attr) = (domain, fabric);
        Ok(info)
    }

    fn fill_contexts(&self, tx: &mut FiTxAttr, rx: &mut FiRxAttr) {
        (tx.caps, rx.caps) = (self.tx_caps, self.rx_caps);
        (tx.op_flags, rx.op_flags) = (self.tx_flags, self.rx_flags);
        (tx.msg_order, rx.msg_order) = (FI_ORDER_SAS, FI_ORDER_SAS);
        (tx.size, rx.size) = (self.tx_size, self.rx_size);
        (tx.iov_limit, rx.iov_limit) = (MAX_RANGES, MAX_RANGES);
        tx.inject_size = INJECT_SIZE;
        tx.rma_iov_limit = 1;
    }

    fn fill_endpoint(&self, endpoint: &mut FiEpAttr) {
        endpoint.r#type = FI_EP_RDM;
        endpoint.protocol = PROTOCOL;
        endpoint.protocol_version = 1;
        endpoint.max_msg_size = MAX_MESSAGE;
        endpoint.mem_tag_format = self.tag_format;
        endpoint.tx_ctx_cnt = 1;
        endpoint.rx_ctx_cnt = 1;
    }

    fn fill_domain(&self, domain: &mut FiDomainAttr) {
        domain.threading = self.threading;
        domain.control_progress = self.control_progress;
        domain.data_progress = self.data_progress;
        domain.resource_mgmt = FI_RM_ENABLED;
        domain.av_type = self.av_type;
        domain.mr_mode = self.mr_mode;
        domain.mr_key_size = size_of::<u64>();
        domain.cq_data_size = size_of::<u64>();
        domain.cq_cnt = MAX_OBJECTS;
        domain.ep_cnt = MAX_OBJECTS;
        domain.tx_ctx_cnt = MAX_OBJECTS;
        domain.rx_ctx_cnt = MAX_OBJECTS;
        domain.max_ep_tx_ctx = 1;
        domain.max_ep_rx_ctx = 1;
        domain.cntr_cnt = MAX_OBJECTS;
        domain.mr_iov_limit = 1;
        domain.caps = DOMAIN_CAPS;
        domain.mr_cnt = MAX_OBJECTS;
        domain.max_cntr_value = u64::MAX;
        domain.max_err_cntr_value = u64::MAX;
    }
}
