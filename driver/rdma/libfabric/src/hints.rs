//! Results of `fi_getinfo`: the provider's properties, restricted by the hints of a program.

use crate::code::Code;
use crate::entry::{optional, text};
use crate::info::{
    ACCESS_DIRECTIONS, CAPS, DOMAIN_CAPS, Description, INJECT_SIZE, MAX_MESSAGE, MAX_OBJECTS, MAX_QUEUE_SIZE,
    MESSAGE_DIRECTIONS, NAME, ON_REQUEST, PRIMARY, RX_CAPS, RX_FLAGS, SECONDARY, TX_CAPS, TX_FLAGS,
};
use crate::log;
use crate::sys::*;
use crate::unsupported::names;
use core::ffi::c_int;
use fpga_messages::{Address, MAX_RANGES};

/// Refuses hints that are not met, and logs which.
fn require(is_met: bool, hint: &str) -> Result<(), Code> {
    if is_met {
        return Ok(());
    }
    log::info(format_args!("hints are not met: {hint}"));
    Err(ENODATA)
}

/// Refuses capabilities or flags that are not supported, and logs which.
fn require_bits(unsupported: u64, hint: &str) -> Result<(), Code> {
    if unsupported == 0 {
        return Ok(());
    }
    log::info(format_args!("hints are not met: {hint} {}", names(unsupported)));
    Err(ENODATA)
}

/// Returns the granted capabilities: requested primary ones with their directions, and secondary ones.
fn granted(requested: u64, supported: u64) -> u64 {
    if requested == 0 {
        return supported & !FI_TAGGED_DIRECTED_RECV & !FI_RMA_EVENT;
    }
    let mut caps = requested & (PRIMARY | MESSAGE_DIRECTIONS | ACCESS_DIRECTIONS) & supported;
    if caps & (FI_MSG | FI_TAGGED) != 0 && caps & MESSAGE_DIRECTIONS == 0 {
        caps |= supported & MESSAGE_DIRECTIONS;
    }
    if caps & (FI_RMA | FI_ATOMIC) != 0 && caps & ACCESS_DIRECTIONS == 0 {
        caps |= supported & ACCESS_DIRECTIONS;
    }
    caps | supported & SECONDARY & !ON_REQUEST | requested & supported & ON_REQUEST
}

impl Description {
    /// Adapts the description to the hints.
    ///
    /// # Errors
    /// `FI_ENODATA` if a hint is not met.
    pub(crate) fn apply(&mut self, hints: &FiInfo, api_version: u32) -> Result<(), Code> {
        let known = if api_version >= version(2, 0) { CAPS } else { CAPS & !FI_TAGGED_DIRECTED_RECV };
        require_bits(hints.caps & !known, "capabilities")?;
        require(matches!(hints.addr_format, FI_FORMAT_UNSPEC | FI_ADDR_STR), "address format")?;
        self.caps = granted(hints.caps, CAPS);
        self.tx_caps = self.caps & TX_CAPS;
        self.rx_caps = self.caps & RX_CAPS;
        if let Some(tx) = optional(hints.tx_attr)? {
            self.apply_tx(tx)?;
        }
        if let Some(rx) = optional(hints.rx_attr)? {
            self.apply_rx(rx)?;
        }
        if let Some(endpoint) = optional(hints.ep_attr)? {
            self.apply_endpoint(endpoint)?;
        }
        let mut modes = 0;
        if let Some(domain) = optional(hints.domain_attr)? {
            self.apply_domain(domain, api_version)?;
            modes = domain.mr_mode;
        }
        self.mr_mode = registration_mode(modes, api_version)?;
        if let Some(fabric) = optional(hints.fabric_attr)? {
            apply_fabric(fabric)?;
        }
        Ok(())
    }

    fn apply_tx(&mut self, tx: &FiTxAttr) -> Result<(), Code> {
        require(tx.caps & !(self.tx_caps | SECONDARY & TX_CAPS) == 0, "capabilities of sending")?;
        require_bits(tx.op_flags & !TX_FLAGS, "flags of sending")?;
        require(tx.msg_order & !FI_ORDER_SAS == 0, "order of messages")?;
        require(tx.comp_order == 0, "order of completions")?;
        require(tx.inject_size <= INJECT_SIZE, "inject size")?;
        require(tx.size <= MAX_QUEUE_SIZE, "number of send operations")?;
        require(tx.iov_limit <= MAX_RANGES && tx.rma_iov_limit <= 1, "number of ranges")?;
        if tx.caps != 0 {
            self.tx_caps = granted(tx.caps, self.tx_caps);
        }
        self.tx_flags = tx.op_flags;
        self.tx_size = self.tx_size.max(tx.size);
        Ok(())
    }

    fn apply_rx(&mut self, rx: &FiRxAttr) -> Result<(), Code> {
        require(rx.caps & !(self.rx_caps | SECONDARY & RX_CAPS) == 0, "capabilities of receiving")?;
        require_bits(rx.op_flags & !RX_FLAGS, "flags of receiving")?;
        require(rx.msg_order & !FI_ORDER_SAS == 0, "order of messages")?;
        require(rx.comp_order == 0, "order of completions")?;
        require(rx.size <= MAX_QUEUE_SIZE, "number of receive operations")?;
        require(rx.iov_limit <= MAX_RANGES, "number of ranges")?;
        if rx.caps != 0 {
            self.rx_caps = granted(rx.caps, self.rx_caps | SECONDARY & RX_CAPS);
            self.caps |= self.rx_caps & ON_REQUEST;
        }
        self.rx_flags = rx.op_flags;
        self.rx_size = self.rx_size.max(rx.size);
        Ok(())
    }

    fn apply_endpoint(&mut self, endpoint: &FiEpAttr) -> Result<(), Code> {
        require(
            matches!(endpoint.r#type, FI_EP_UNSPEC | FI_EP_RDM),
            "endpoint type; the provider has FI_EP_RDM (fi_pingpong -e rdm)",
        )?;
        require(matches!(endpoint.protocol, 0 | PROTOCOL), "protocol")?;
        require(endpoint.protocol_version <= 1, "version of the protocol")?;
        require(endpoint.max_msg_size <= MAX_MESSAGE, "length of messages")?;
        let ordered = [endpoint.max_order_raw_size, endpoint.max_order_war_size, endpoint.max_order_waw_size];
        require(ordered == [0; 3], "ordered remote access")?;
        require(
            endpoint.tx_ctx_cnt <= 1 && endpoint.rx_ctx_cnt <= 1,
            "scalable endpoints and shared contexts",
        )?;
        require(endpoint.auth_key_size == 0, "authorization keys")?;
        if endpoint.mem_tag_format != 0 {
            self.tag_format = endpoint.mem_tag_format;
        }
        Ok(())
    }

    fn apply_domain(&mut self, domain: &FiDomainAttr, api_version: u32) -> Result<(), Code> {
        if let Some(name) = text(domain.name)? {
            require(name == self.domain, "domain name")?;
        }
        require((0..=FI_THREAD_ENDPOINT).contains(&domain.threading), "threading")?;
        let progress = FI_PROGRESS_UNSPEC..=FI_PROGRESS_CONTROL_UNIFIED;
        require(
            progress.contains(&domain.control_progress) && progress.contains(&domain.data_progress),
            "progress",
        )?;
        require((0..=FI_RM_ENABLED).contains(&domain.resource_mgmt), "resource management")?;
        require((0..=FI_AV_TABLE).contains(&domain.av_type), "type of the address vector")?;
        require(domain.cq_data_size <= size_of::<u64>(), "size of immediate data")?;
        require(domain.mr_key_size <= size_of::<u64>(), "size of keys")?;
        require(domain.max_ep_stx_ctx == 0 && domain.max_ep_srx_ctx == 0, "shared contexts")?;
        require(domain.max_ep_tx_ctx <= 1 && domain.max_ep_rx_ctx <= 1, "scalable endpoints")?;
        if api_version >= version(1, 5) {
            let counts = [domain.cntr_cnt, domain.mr_cnt, domain.ep_cnt, domain.cq_cnt];
            require(counts.iter().all(|count| *count <= MAX_OBJECTS), "number of objects")?;
            require(domain.mr_iov_limit <= 1, "ranges of a memory region")?;
            require(domain.caps & !DOMAIN_CAPS == 0, "capabilities of the domain")?;
            require(domain.max_err_data == 0, "length of error data")?;
            require(domain.auth_key_size == 0, "authorization keys")?;
        }
        if domain.threading != 0 {
            self.threading = domain.threading;
        }
        if domain.data_progress != FI_PROGRESS_UNSPEC {
            (self.data_progress, self.control_progress) = (domain.data_progress, domain.data_progress);
        }
        if domain.control_progress != FI_PROGRESS_UNSPEC && self.data_progress != FI_PROGRESS_AUTO {
            self.control_progress = domain.control_progress;
        }
        if matches!(domain.av_type, FI_AV_MAP | FI_AV_TABLE) {
            self.av_type = domain.av_type;
        }
        Ok(())
    }
}

fn apply_fabric(fabric: &FiFabricAttr) -> Result<(), Code> {
    if let Some(name) = text(fabric.name)? {
        require(name == NAME, "fabric name")?;
    }
    if let Some(names) = text(fabric.prov_name)? {
        // "^" excludes: the library has evaluated it.
        let is_named =
            names.starts_with('^') || names.split([';', ',']).any(|name| name.eq_ignore_ascii_case(NAME));
        require(is_named, "provider name")?;
    }
    Ok(())
}

/// Returns the registration mode for the modes that a program supports. None is required; programs that prefer virtual addresses or keys of
/// the provider set their bits in the result.
fn registration_mode(modes: c_int, api_version: u32) -> Result<c_int, Code> {
    if modes == FI_MR_BASIC || modes == FI_MR_SCALABLE {
        return Ok(modes);
    }
    if api_version < version(1, 5) {
        require(modes == 0, "mode of memory registration")?;
        return Ok(FI_MR_SCALABLE);
    }
    require(modes & (FI_MR_BASIC | FI_MR_SCALABLE) == 0, "mode of memory registration")?;
    Ok(0)
}

/// Parses an address in hints.
pub(crate) fn address(pointer: *const u8, length: usize) -> Result<Option<Address>, Code> {
    if pointer.is_null() {
        return Ok(None);
    }
    let bytes = crate::entry::array(pointer, length.min(crate::vector::ADDRESS_LENGTH))?;
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).map(Some).ok_or(ENODATA)
}
