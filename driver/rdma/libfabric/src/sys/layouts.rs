//! Comparison with the installed headers: a C program prints sizes, offsets and values of everything that is used here.

use super::messages::{FiRmaIoc, FiRmaIov};
use super::*;
use core::mem::offset_of;
use fpga_pci::testing::skipped_without;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Structure of the headers: its size and the offsets of its fields here.
struct Layout {
    name: &'static str,
    size: usize,
    fields: Vec<(&'static str, usize)>,
}

macro_rules! layouts {
    ($($name:ident = $type:ty { $($field:tt),* $(,)? })*) => {
        vec![$(Layout {
            name: stringify!($name),
            size: size_of::<$type>(),
            fields: vec![$((stringify!($field).trim_start_matches("r#"), offset_of!($type, $field))),*],
        }),*]
    };
}

fn layouts() -> Vec<Layout> {
    layouts! {
        fi_tx_attr = FiTxAttr { caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit, tclass }
        fi_rx_attr = FiRxAttr { caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit }
        fi_ep_attr = FiEpAttr { r#type, protocol, protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size, max_order_war_size, max_order_waw_size, mem_tag_format, tx_ctx_cnt, rx_ctx_cnt, auth_key_size, auth_key }
        fi_domain_attr = FiDomainAttr { domain, name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode, mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt, max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx, max_ep_srx_ctx, cntr_cnt, mr_iov_limit, caps, mode, auth_key, auth_key_size, max_err_data, mr_cnt, tclass }
        fi_fabric_attr = FiFabricAttr { fabric, name, prov_name, prov_version, api_version }
        fi_info = FiInfo { next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle, tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr, nic }
        fid = Fid { fclass, context, ops }
        fi_ops = FiOps { size, close, bind, control, ops_open, tostr, ops_set }
        fi_alias = FiAlias { fid, flags }
        fi_ops_fabric = FiOpsFabric { size, domain, passive_ep, eq_open, wait_open, trywait, domain2 }
        fid_fabric = FidFabric { fid, ops, api_version }
        fi_ops_domain = FiOpsDomain { size, av_open, cq_open, endpoint, scalable_ep, cntr_open, poll_open, stx_ctx, srx_ctx, query_atomic, query_collective, endpoint2 }
        fi_ops_mr = FiOpsMr { size, reg, regv, regattr }
        fid_domain = FidDomain { fid, ops, mr }
        fi_av_attr = FiAvAttr { r#type, rx_ctx_bits, count, ep_per_node, name, map_addr, flags }
        fi_ops_av = FiOpsAv { size, insert, insertsvc, insertsym, remove, lookup, straddr, av_set }
        fid_av = FidAv { fid, ops }
        fid_mr = FidMr { fid, mem_desc, key }
        fi_mr_attr = FiMrAttr { mr_iov, iov_count, access, offset, requested_key, context, auth_key_size, auth_key, iface, device }
        fi_provider = FiProvider { version, fi_version, context, name, getinfo, fabric, cleanup }
        fi_eq_attr = FiEqAttr { size, flags, wait_obj, signaling_vector, wait_set }
        fi_eq_entry = FiEqEntry { fid, context, data }
        fi_eq_err_entry = FiEqErrEntry { fid, context, data, err, prov_errno, err_data, err_data_size }
        fi_ops_eq = FiOpsEq { size, read, readerr, write, sread, strerror }
        fid_eq = FidEq { fid, ops }
        fi_cq_attr = FiCqAttr { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set }
        fi_cq_entry = FiCqEntry { op_context }
        fi_cq_msg_entry = FiCqMsgEntry { op_context, flags, len }
        fi_cq_data_entry = FiCqDataEntry { op_context, flags, len, buf, data }
        fi_cq_tagged_entry = FiCqTaggedEntry { op_context, flags, len, buf, data, tag }
        fi_cq_err_entry = FiCqErrEntry { op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size }
        fi_ops_cq = FiOpsCq { size, read, readfrom, readerr, sread, sreadfrom, signal, strerror }
        fid_cq = FidCq { fid, ops }
        fi_cntr_attr = FiCntrAttr { events, wait_obj, wait_set, flags }
        fi_ops_cntr = FiOpsCntr { size, read, readerr, add, set, wait, adderr, seterr }
        fid_cntr = FidCntr { fid, ops }
        fi_msg = FiMsg { msg_iov, desc, iov_count, addr, context, data }
        fi_ops_ep = FiOpsEp { size, cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left }
        fi_ops_cm = FiOpsCm { size, setname, getname, getpeer, connect, listen, accept, reject, shutdown, join }
        fi_ops_msg = FiOpsMsg { size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata }
        fi_ops_collective = FiOpsCollective { size, barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter, reduce, scatter, gather, msg, barrier2 }
        fid_ep = FidEp { fid, ops, cm, msg, rma, tagged, atomic, collective }
        fi_msg_tagged = FiMsgTagged { msg_iov, desc, iov_count, addr, tag, ignore, context, data }
        fi_ops_tagged = FiOpsTagged { size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata }
        fi_rma_iov = FiRmaIov { addr, len, key }
        fi_msg_rma = FiMsgRma { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data }
        fi_ops_rma = FiOpsRma { size, read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata }
        fi_ioc = FiIoc { addr, count }
        fi_rma_ioc = FiRmaIoc { addr, count, key }
        fi_atomic_attr = FiAtomicAttr { count, size }
        fi_msg_atomic = FiMsgAtomic { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, datatype, op, context, data }
        fi_ops_atomic = FiOpsAtomic { size, write, writev, writemsg, inject, readwrite, readwritev, readwritemsg, compwrite, compwritev, compwritemsg, writevalid, readwritevalid, compwritevalid }
    }
}

/// Structures of the caller that newer headers make longer than they are here, because only the fields of version 1.17 are used.
const PREFIXES: [&str; 4] = ["fi_mr_attr", "fi_cq_attr", "fi_cq_err_entry", "fi_cntr_attr"];

fn program(layouts: &[Layout]) -> String {
    let mut text = String::from("#include <stdio.h>\n#include <stddef.h>\n");
    for header in [
        "fabric",
        "fi_domain",
        "fi_endpoint",
        "fi_eq",
        "fi_cm",
        "fi_tagged",
        "fi_rma",
        "fi_atomic",
        "fi_collective",
    ] {
        writeln!(text, "#include <rdma/{header}.h>").unwrap();
    }
    text.push_str("#include <rdma/providers/fi_prov.h>\nint main(void) {\n");
    for Layout { name, fields, .. } in layouts {
        writeln!(text, "printf(\"{name} %zu\\n\", sizeof(struct {name}));").unwrap();
        for (field, _) in fields {
            writeln!(text, "printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {field}));").unwrap();
        }
    }
    for name in BITS.iter().chain(NUMBERS).map(|(name, _)| name).chain(CODES.iter().map(|(name, _)| name)) {
        writeln!(text, "printf(\"{name} %llu\\n\", (unsigned long long) {name});").unwrap();
    }
    text.push_str("return 0;\n}\n");
    text
}

#[test]
fn layouts_match_installed_headers() {
    // Another version's headers: FPGA_LIBFABRIC_INCLUDE=DIRECTORY.
    let include = std::env::var("FPGA_LIBFABRIC_INCLUDE").unwrap_or_else(|_| "/usr/include".to_owned());
    if !Path::new(&include).join("rdma/fabric.h").exists() {
        skipped_without(&format!("{include}/rdma/fabric.h"), "libfabric-dev");
        return;
    }
    let layouts = layouts();
    let directory = tempfile::tempdir().unwrap();
    let (source, binary) = (directory.path().join("layouts.c"), directory.path().join("layouts"));
    std::fs::write(&source, program(&layouts)).unwrap();
    let compiled = Command::new("cc").args(["-w", "-I", &include, "-o"]).arg(&binary).arg(&source).output();
    let Ok(compiled) = compiled else {
        skipped_without("a C compiler", "gcc");
        return;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&binary).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let lines = output.lines().map(|line| line.split_once(' ').unwrap());
    let values: std::collections::HashMap<&str, u64> =
        lines.map(|(name, value)| (name, value.parse().unwrap())).collect();

    for Layout { name, size, fields } in layouts {
        let theirs = usize::try_from(values[name]).unwrap();
        assert!(
            PREFIXES.contains(&name) || size >= theirs,
            "{name} has {size} bytes here, {theirs} in the headers"
        );
        for (field, offset) in fields {
            let key = format!("{name}.{field}");
            assert_eq!(u64::try_from(offset).unwrap(), values[key.as_str()], "{key}");
        }
    }
    let codes = CODES.iter().map(|(name, code)| (*name, u64::try_from(Code::get(*code)).unwrap()));
    for (name, value) in BITS.iter().chain(NUMBERS).copied().chain(codes) {
        assert_eq!(value, values[name], "{name}");
    }
}
