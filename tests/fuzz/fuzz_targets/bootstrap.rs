//! Fuzzes the bytes that unknown senders write to a publisher's port, split in any way, and the blocks that peers write into card memory
//! about a stream. Every input is accepted or refused with an error, the buffered data is bounded, and every accepted input has exactly one
//! encoding.
#![no_main]

use fpga_firmware::crc::crc32c;
use fpga_frames::blocks::{BLOCK, CreditBlock, FrameHeader, StatusBlock, VERSION};
use fpga_frames::bootstrap::wire::{HEADER_LENGTH, Inbox, MAX_BODY, MAX_MESSAGE};
use libfuzzer_sys::fuzz_target;

/// Stream or key of the first block at its usual offset: with a wrong one the decoder refuses everything else.
fn stream(bytes: &[u8]) -> u64 {
    bytes.get(8..16).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight")))
}

fn check_blocks(bytes: &[u8]) {
    let stream = stream(bytes);
    let head = bytes.get(..BLOCK);
    // Bytes after the fields are not compared: a later version may use them.
    if let Ok(header) = FrameHeader::decode(bytes, bytes.len(), stream) {
        assert_eq!(header.encode()[..48], bytes[..48]);
        assert!(header.value_length <= header.max_value_length);
        // Another frame may follow in the same transfer.
        let whole = header.data_length + u64::from(header.max_value_length) + BLOCK as u64;
        assert!(whole <= bytes.len() as u64);
    }
    if let Ok(status) = StatusBlock::decode(bytes, stream) {
        assert_eq!(StatusBlock::decode(&status.encode(), stream), Ok(status));
        assert!(head.is_some());
    }
    if let Ok(credit) = CreditBlock::decode(bytes, stream) {
        assert_eq!(CreditBlock::decode(&credit.encode(), stream), Ok(credit));
        assert!(head.is_some());
    }
}

/// Feeds the bytes in chunks of at most `cut`.
fn check_messages(bytes: &[u8], cut: usize) {
    let mut inbox = Inbox::default();
    let mut rest = bytes;
    let mut taken = 0;
    while !rest.is_empty() {
        let wanted = inbox.wanted();
        assert!((1..=MAX_MESSAGE).contains(&wanted));
        let (chunk, after) = rest.split_at(cut.min(wanted).min(rest.len()));
        rest = after;
        match inbox.take(chunk) {
            Ok(None) => {}
            Ok(Some(message)) => {
                let end = bytes.len() - rest.len();
                let again = message.encode();
                let sent = &bytes[taken..end];
                // A refusal of any version is decoded, and encoded with this version.
                if sent[8..10] == VERSION.to_le_bytes() {
                    assert_eq!(again, sent);
                }
                taken = end;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return;
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    let cut = usize::from(cut).max(1);
    check_messages(bytes, cut);
    check_blocks(bytes);
    // Magic, version, lengths and checksums stop nearly every mutation: test the same bytes with valid ones too.
    let mut message = bytes.to_vec();
    if message.len() >= HEADER_LENGTH + 4 {
        let body = (message.len() - HEADER_LENGTH - 4).min(MAX_BODY);
        message.truncate(HEADER_LENGTH + body + 4);
        message[..8].copy_from_slice(b"FPGAFRMS");
        message[8..10].copy_from_slice(&VERSION.to_le_bytes());
        message[10] %= 7;
        message[11] = 0;
        message[12..16].copy_from_slice(&u32::try_from(body).expect("at most 512").to_le_bytes());
        let crc = crc32c(&message[..HEADER_LENGTH + body]);
        message[HEADER_LENGTH + body..].copy_from_slice(&crc.to_le_bytes());
        check_messages(&message, cut);
    }
    let mut block = bytes.to_vec();
    if block.len() >= BLOCK {
        block[..4].copy_from_slice(b"FRM1");
        block[4..6].copy_from_slice(&VERSION.to_le_bytes());
        block[6] = block[6] % 3 + 1;
        block[7] = 0;
        let crc = crc32c(&block[..BLOCK - 4]);
        block[BLOCK - 4..BLOCK].copy_from_slice(&crc.to_le_bytes());
        check_blocks(&block);
    }
});
