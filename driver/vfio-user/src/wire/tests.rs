//! Round trip of every message, and decoding of arbitrary bytes without a panic.

use proptest::prelude::*;

use super::*;

/// Random numbers, some of them at the limits.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..64_u64, Just(u64::MAX), Just(1 << 32)]
}

fn word() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), 0..64_u32, Just(u32::MAX)]
}

prop_compose! {
    fn capabilities()(
        fds in any::<Option<u32>>(), data in any::<Option<u32>>(), maps in any::<Option<u32>>(),
        sizes in any::<Option<u64>>(), pgsize in any::<Option<Option<u64>>>(),
        twin in any::<Option<(Option<bool>, Option<u32>)>>(), multiple in any::<Option<bool>>(),
        write_ring in any::<Option<bool>>(), stream_claims in any::<Option<bool>>(),
    ) -> Capabilities {
        Capabilities {
            max_msg_fds: fds,
            max_data_xfer_size: data,
            max_dma_maps: maps,
            pgsizes: sizes,
            migration: pgsize.map(|pgsize| MigrationCapability { pgsize }),
            twin_socket: twin.map(|(supported, fd_index)| TwinSocket { supported, fd_index }),
            write_multiple: multiple,
            write_ring,
            stream_claims,
        }
    }
}

prop_compose! {
    fn version()(major in any::<u16>(), minor in any::<u16>(), capabilities in capabilities()) -> Version {
        Version { major, minor, capabilities }
    }
}

prop_compose! {
    fn region_info()(
        index in word(), size in number(), offset in number(), flags in 0..8_u32, msix_mappable in any::<bool>(),
        sparse in proptest::option::of(proptest::collection::vec((number(), number()), 0..8)),
    ) -> RegionInfo {
        let sparse: Option<Vec<_>> =
            sparse.map(|areas| areas.into_iter().map(|(offset, size)| SparseArea { offset, size }).collect());
        let has = sparse.is_some() || msix_mappable;
        let flags = flags | if has { region_flags::CAPS } else { 0 };
        let mut info = RegionInfo { argsz: 0, flags, index, size, offset, sparse, msix_mappable };
        info.argsz = info.length();
        info
    }
}

/// Calls `check` with a request of kind `kind` built from the other arguments.
fn with_request(
    kind: u8,
    (a, b, c): (u64, u64, u64),
    (i, j): (u32, u32),
    data: &[u8],
    version: Version,
    check: impl FnOnce(Request<'_>) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let count = u32::try_from(data.len()).expect("short");
    let access = RegionAccess { offset: a, region: i, count };
    let transfer = DmaTransfer { address: a, count: data.len() as u64 };
    let info = InfoRequest { argsz: i, index: j };
    let action = [IrqAction::Mask, IrqAction::Unmask, IrqAction::Trigger][usize::from(kind / 20 % 3)];
    let irqs = |data, count| SetIrqs { data, action, index: i, start: j.min(u32::MAX - count), count };
    check(match kind % 19 {
        0 => Request::Version(version),
        1 => Request::DmaMap(DmaMap { flags: i, offset: a, address: b, size: c }),
        2 => Request::DmaUnmap(DmaUnmap { argsz: i, flags: j, address: a, size: b }),
        // The device as a whole has no index.
        3 => Request::DeviceGetInfo(InfoRequest { argsz: i, index: 0 }),
        4 => Request::DeviceGetRegionInfo(info),
        5 => Request::DeviceGetRegionIoFds(info),
        6 => Request::DeviceGetIrqInfo(info),
        7 => Request::DeviceSetIrqs(irqs(IrqData::None, i)),
        8 => Request::DeviceSetIrqs(irqs(IrqData::Bool(data), count)),
        9 => Request::DeviceSetIrqs(irqs(IrqData::EventFds, i)),
        10 => Request::RegionRead(RegionAccess { count: i % (MAX_DATA + 1), ..access }),
        11 => Request::RegionWrite(access, data),
        12 => Request::DmaRead(DmaTransfer { count: b % u64::from(MAX_DATA + 1), ..transfer }),
        13 => Request::DmaWrite(transfer, data),
        14 => Request::DeviceReset,
        15 => Request::RegionWriteMulti(
            data.chunks(8).map(|data| SmallWrite::new(i, a, data).expect("at most 8 bytes")).collect(),
        ),
        16 => Request::ClaimStream(StreamClaim { is_c2h: a % 2 == 0, number: kind, takes: b % 2 == 0 }),
        _ => Request::Unsupported(Command(u16::try_from(i % 1000).expect("small") + 16)),
    })
}

fn with_reply(
    kind: u8,
    (a, b): (u64, u64),
    (i, j): (u32, u32),
    data: &[u8],
    (version, region): (Version, RegionInfo),
    check: impl FnOnce(Reply<'_>) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let count = u32::try_from(data.len()).expect("short");
    let access = RegionAccess { offset: a, region: i, count };
    let transfer = DmaTransfer { address: a, count: data.len() as u64 };
    check(match kind % 14 {
        0 => Reply::Version(version),
        1 => Reply::DmaMap,
        2 => Reply::DmaUnmap(DmaUnmap { argsz: i, flags: j, address: a, size: b }),
        3 => Reply::DeviceGetInfo(DeviceInfo { flags: i, regions: j, irqs: i ^ j }),
        4 => Reply::DeviceGetRegionInfo(region),
        5 => Reply::DeviceGetIrqInfo(IrqInfo { flags: i, index: j, count: i ^ j }),
        6 => Reply::DeviceSetIrqs,
        7 => Reply::RegionRead(access, data),
        8 => Reply::RegionWrite(access),
        9 => Reply::DmaRead(transfer, data),
        10 => Reply::DmaWrite(transfer),
        11 => Reply::DeviceReset,
        12 => Reply::ClaimStream,
        _ => Reply::RegionWriteMulti(a),
    })
}

/// Splits an encoded message.
fn parts(message: &[u8]) -> (Header, &[u8]) {
    let (header, body) = message.split_first_chunk::<HEADER_LENGTH>().expect("a header");
    let header = Header::decode(header).expect("a header that was encoded");
    assert_eq!(header.body_length(), body.len());
    (header, body)
}

proptest! {
    #[test]
    fn wire_requests_round_trip(
        kind in any::<u8>(), numbers in (number(), number(), number()), words in (word(), word()),
        data in proptest::collection::vec(any::<u8>(), 0..100), version in version(), id in any::<u16>(), no_reply in any::<bool>(),
    ) {
        with_request(kind, numbers, words, &data, version, |request| {
            let mut message = Vec::new();
            encode_request(id, no_reply, &request, &mut message);
            let (header, body) = parts(&message);
            prop_assert_eq!(header.id, id);
            prop_assert_eq!(header.kind, Kind::Request { no_reply });
            prop_assert_eq!(Request::decode(header.command, body), Ok(request));
            Ok(())
        })?;
    }

    #[test]
    fn wire_replies_round_trip(
        kind in any::<u8>(), numbers in (number(), number()), words in (word(), word()),
        data in proptest::collection::vec(any::<u8>(), 0..100), infos in (version(), region_info()), id in any::<u16>(),
    ) {
        with_reply(kind, numbers, words, &data, infos, |reply| {
            let mut message = Vec::new();
            encode_reply(id, &reply, &mut message);
            let (header, body) = parts(&message);
            prop_assert_eq!(header.id, id);
            prop_assert_eq!(header.kind, Kind::Reply { error: None });
            prop_assert_eq!(Reply::decode(header.command, body), Ok(Some(reply)));
            Ok(())
        })?;
    }

    /// A truncated or padded message is an error or decodes to the same value (where fields may follow), never to another one.
    #[test]
    fn wire_cut_or_padded_message_is_refused(
        kind in any::<u8>(), numbers in (number(), number(), number()), words in (word(), word()),
        data in proptest::collection::vec(any::<u8>(), 1..50), cut in 1..40_usize,
    ) {
        with_request(kind, numbers, words, &data, Version::default(), |request| {
            let mut body = Vec::new();
            request.encode(&mut body);
            let command = request.command();
            let kept = body.len().saturating_sub(cut);
            if kept < body.len() && command != Command::VERSION && !matches!(request, Request::Unsupported(_)) {
                prop_assert!(Request::decode(command, &body[..kept]).is_err());
            }
            body.resize(body.len() + cut, 0);
            match Request::decode(command, &body) {
                Ok(again) if command != Command::VERSION => prop_assert_eq!(again, request),
                _ => {}
            }
            Ok(())
        })?;
    }

    /// Arbitrary bytes yield a message or an error, and a decoded message decodes to the same value after encoding.
    #[test]
    fn wire_any_bytes_parse_or_are_refused(
        command in prop_oneof![0..20_u16, any::<u16>()], body in proptest::collection::vec(any::<u8>(), 0..120), header in any::<[u8; 16]>(),
    ) {
        let command = Command(command);
        let mut again = Vec::new();
        if let Ok(request) = Request::decode(command, &body) {
            request.encode(&mut again);
            prop_assert_eq!(Request::decode(command, &again), Ok(request));
        }
        again.clear();
        if let Ok(Some(reply)) = Reply::decode(command, &body) {
            reply.encode(&mut again);
            let once = Reply::decode(command, &again);
            prop_assert!(matches!(once, Ok(Some(_))));
        }
        if let Ok(header) = Header::decode(&header) {
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
    }
}

#[test]
fn wire_header_matches_specification() {
    // Offsets and flags from the table in "Header".
    let header =
        Header { id: 0x0102, command: Command::DMA_MAP, size: 48, kind: Kind::Request { no_reply: true } };
    let bytes = header.encode();
    assert_eq!(bytes[0..2], 0x0102_u16.to_ne_bytes());
    assert_eq!(bytes[2..4], 2_u16.to_ne_bytes());
    assert_eq!(bytes[4..8], 48_u32.to_ne_bytes());
    assert_eq!(bytes[8..12], 0x10_u32.to_ne_bytes());
    assert_eq!(bytes[12..16], [0; 4]);
    let refused = Header { kind: Kind::Reply { error: Some(22) }, ..header }.encode();
    assert_eq!(refused[8..12], 0x21_u32.to_ne_bytes());
    assert_eq!(refused[12..16], 22_u32.to_ne_bytes());
}

#[test]
fn wire_message_sizes_match_specification() {
    let length = |request: &Request<'_>| {
        let mut message = Vec::new();
        encode_request(1, false, request, &mut message);
        message.len()
    };
    let info = InfoRequest { argsz: 32, index: 7 };
    assert_eq!(length(&Request::DmaMap(DmaMap { flags: 3, offset: 0, address: 0, size: 4096 })), 16 + 32);
    assert_eq!(length(&Request::DmaUnmap(DmaUnmap { argsz: 24, flags: 0, address: 0, size: 4096 })), 16 + 24);
    assert_eq!(length(&Request::DeviceGetInfo(info)), 16 + 16);
    assert_eq!(length(&Request::DeviceGetRegionInfo(info)), 16 + 32);
    assert_eq!(length(&Request::DeviceGetIrqInfo(info)), 16 + 16);
    assert_eq!(length(&Request::DeviceReset), 16);
}

#[test]
fn wire_invalid_sizes_are_refused() {
    for size in [0, 15, MAX_MESSAGE + 1, u32::MAX] {
        let header = Header { id: 0, command: Command::VERSION, size, kind: Kind::Reply { error: None } };
        assert_eq!(
            Header::decode(&header.encode()),
            Err(WireError::Size { command: Command::VERSION, size })
        );
    }
    let mut neither = [0; 16];
    neither[8] = 2;
    assert_eq!(Header::decode(&neither), Err(WireError::Type { flags: u32::from_ne_bytes([2, 0, 0, 0]) }));
}

#[test]
fn wire_region_info_requests_space_for_capabilities() {
    let sparse = Some(vec![SparseArea { offset: 0, size: 4096 }, SparseArea { offset: 8192, size: 4096 }]);
    let whole = RegionInfo { size: 1 << 16, sparse, msix_mappable: true, ..RegionInfo::default() };
    assert_eq!(whole.length(), 32 + 8 + 16 + 2 * 16);
    let cut = whole.clone().within(32);
    assert_eq!((cut.argsz, &cut.sparse), (88, &None));
    let mut body = Vec::new();
    cut.encode(&mut body);
    assert_eq!(body.len(), 32);
    let back = RegionInfo::decode(&body).expect("a region without its capabilities");
    assert_eq!((back.argsz, back.size), (88, 1 << 16));
    assert_eq!(whole.clone().within(88).sparse, whole.sparse);
}

#[test]
fn wire_circular_capability_chain_ends() {
    let info = RegionInfo { sparse: Some(Vec::new()), ..RegionInfo::default() };
    let mut body = Vec::new();
    info.encode(&mut body);
    body[36..40].copy_from_slice(&32_u32.to_ne_bytes());
    assert_eq!(RegionInfo::decode(&body), Err(WireError::Chain { at: 32 }));
    body[36..40].copy_from_slice(&4_u32.to_ne_bytes());
    assert_eq!(RegionInfo::decode(&body), Err(WireError::Chain { at: 4 }));
}

#[test]
fn wire_sparse_area_beyond_message_is_refused() {
    let info =
        RegionInfo { sparse: Some(vec![SparseArea { offset: 0, size: 4096 }]), ..RegionInfo::default() };
    let mut body = Vec::new();
    info.encode(&mut body);
    body[40..44].copy_from_slice(&u32::MAX.to_ne_bytes());
    let expected =
        WireError::Count { command: Command::DEVICE_GET_REGION_INFO, count: u32::MAX.into(), got: 1 };
    assert_eq!(RegionInfo::decode(&body), Err(expected));
}

#[test]
fn wire_irq_flags_are_exclusive() {
    let irqs = SetIrqs { data: IrqData::None, action: IrqAction::Trigger, index: 2, start: 0, count: 0 };
    let mut body = Vec::new();
    irqs.encode(&mut body);
    for data in 0..8_u32 {
        for action in 0..8_u32 {
            let flags = data | action << 3;
            body[4..8].copy_from_slice(&flags.to_ne_bytes());
            let fine = data.count_ones() == 1 && action.count_ones() == 1;
            assert_eq!(SetIrqs::decode(&body).is_ok(), fine, "flags {flags:#x}");
        }
    }
    body[4..8].copy_from_slice(&0x61_u32.to_ne_bytes());
    assert!(SetIrqs::decode(&body).is_err(), "an unknown flag");
}

#[test]
fn wire_capabilities_have_defaults_and_keep_unknown() {
    let body = |text: &str| [&[0, 0, 1, 0], text.as_bytes()].concat();
    let version = Version::decode(&body("")).expect("no capabilities at all");
    let of = &version.capabilities;
    assert_eq!(
        (of.max_msg_fds(), of.max_data(), of.max_dma_maps(), of.page_sizes()),
        (1, 1 << 20, 65535, 4096)
    );
    // Capabilities as libvfio-user and QEMU send them, with a NUL, and a field of a later version.
    let text = "{\"capabilities\":{\"max_msg_fds\":8,\"max_data_xfer_size\":65536,\"migration\":{\"pgsize\":4096},\"new\":[{}]}}\0";
    let version = Version::decode(&body(text)).expect("capabilities");
    assert_eq!((version.capabilities.max_msg_fds(), version.capabilities.max_data()), (8, 65536));
    for wrong in
        ["{", "{\"capabilities\":3}", "{\"capabilities\":{\"max_msg_fds\":-1}}", "{}\0{}", "\u{0}\u{0}"]
    {
        assert!(matches!(Version::decode(&body(wrong)), Err(WireError::Capabilities { .. })), "{wrong:?}");
    }
}
