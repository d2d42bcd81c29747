//! CompleteMultipartUpload: everything is checked before anything is moved.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use md5::{Digest as _, Md5};

use super::super::attributes::{Raw, decode_parts, encode, encode_checksums, name};
use super::super::bucket::Bucket;
use super::super::commit::{Purpose, check, current_of};
use super::super::error::{Error, Result};
use super::super::fs::DIR;
use super::super::inner::Inner;
use super::super::key::Key;
use super::super::object::Slot;
use super::super::types::{
    ChecksumType, Checksums, CompleteUpload, CompletedPart, ObjectAttributes, ObjectInfo, PartInfo,
};
use super::Upload;
use super::assembly::Piece;
use crate::digest::{Algorithm, Digester};

/// What the object will be.
struct Plan {
    pieces: Vec<Piece>,
    ends: Vec<u64>,
    etag: String,
    checksums: Option<Checksums>,
    part_checksums: Vec<String>,
}

impl Inner {
    pub(crate) fn complete_upload(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
        request: &CompleteUpload,
    ) -> Result<ObjectInfo> {
        self.writable()?;
        let key = Key::parse(key)?;
        let bucket = self.bucket(bucket)?;
        let locked = self.upload(&bucket, &key, id).and_then(|upload| {
            let lock = self.lock_upload(&bucket, &key, &upload)?;
            Ok((upload, lock))
        });
        let (upload, _lock) = match locked {
            // A client that got no answer asks again.
            Err(Error::NoSuchUpload(id)) => {
                let info = self.completed(&bucket, &key, &id)?.ok_or(Error::NoSuchUpload(id))?;
                self.sync_name(&bucket, &key)?;
                return Ok(info);
            }
            other => other?,
        };
        if let Some(info) = self.completed(&bucket, &key, id)? {
            // A crash came between publication and clearing up.
            self.sync_name(&bucket, &key)?;
            self.remove_upload(&bucket, &key, &upload)?;
            return Ok(info);
        }
        if self.is_consumed(&upload)? {
            self.remove_upload(&bucket, &key, &upload)?;
            return Err(Error::NoSuchUpload(id.to_owned()));
        }
        let plan = self.plan(&bucket, &upload, request)?;
        let slot = self.slot(&bucket, &key)?;
        check(&key, current_of(&slot), &request.conditions)?;
        if let Slot::Dir(found) = &slot {
            self.check_way(&bucket, &key, found)?;
        }
        let mut raw: Raw = upload.raw.clone();
        raw.insert(name::ETAG.to_owned(), format!("\"{}\"", plan.etag).into_bytes());
        raw.remove(name::CHECKSUMS);
        raw.remove(name::INITIATOR);
        if let Some(checksums) = &plan.checksums {
            raw.insert(name::CHECKSUMS.to_owned(), encode_checksums(checksums));
        }
        let parts = ObjectAttributes {
            part_ends: plan.ends.clone(),
            part_checksums: plan.part_checksums.clone(),
            ..Default::default()
        };
        raw.extend(encode(&parts, Some(id)));
        let temp = self.assemble(&bucket, &key, &upload, &plan.pieces)?;
        let info = self.publish(&bucket, &key, temp, raw, &request.conditions, Purpose::Object)?;
        self.remove_upload(&bucket, &key, &upload)?;
        Ok(info)
    }

    /// Makes the name of an object durable that was published by somebody who may have died before
    /// that: the answer for it promises as much as any.
    fn sync_name(&self, bucket: &Bucket, key: &Key) -> Result<()> {
        if !self.sync_names() {
            return Ok(());
        }
        let fail = |error| bucket.error("sync", key.as_str(), error);
        let parent = bucket.open(key.parent(), DIR).map_err(fail)?;
        self.fs.sync_dir(&parent, key.name()).map_err(fail)
    }

    /// The object, when it is what this upload became.
    fn completed(&self, bucket: &Bucket, key: &Key, id: &str) -> Result<Option<ObjectInfo>> {
        let Some(found) = self.current(bucket, key)? else { return Ok(None) };
        let parts = found.raw.get(name::MULTIPART).and_then(|v| decode_parts(v));
        if parts.is_none_or(|parts| parts.upload_id != id) {
            return Ok(None);
        }
        Ok(Some(found.info(key.as_str(), self.versioning_of(bucket)?)))
    }

    /// Checks the client's list against what was uploaded.
    fn plan(&self, bucket: &Bucket, upload: &Upload, request: &CompleteUpload) -> Result<Plan> {
        if request.parts.is_empty() {
            return Err(Error::InvalidArgument("an object needs at least one part".to_owned()));
        }
        if request.parts.windows(2).any(|pair| pair[0].number >= pair[1].number) {
            return Err(Error::InvalidPartOrder);
        }
        let assembled = self.assembled(upload)?;
        let mut pieces = Vec::with_capacity(request.parts.len());
        let mut start = 0;
        for part in &assembled {
            pieces.push(Piece { info: part.info(), assembled_at: Some(start) });
            start += part.size;
        }
        let assembled: BTreeMap<u32, Piece> = pieces.drain(..).map(|p| (p.info.number, p)).collect();
        let mut ends = Vec::with_capacity(request.parts.len());
        let mut size = 0;
        for (at, wanted) in request.parts.iter().enumerate() {
            let piece = match self.part_info(bucket, upload, wanted.number)? {
                Some(info) => Piece { info, assembled_at: None },
                None => assembled.get(&wanted.number).cloned().ok_or_else(|| Error::InvalidPart {
                    number: wanted.number,
                    reason: "it was not uploaded".to_owned(),
                })?,
            };
            check_part(&piece.info, wanted)?;
            if piece.info.size < self.options.min_part_size && at + 1 < request.parts.len() {
                return Err(Error::EntityTooSmall(wanted.number));
            }
            size += piece.info.size;
            ends.push(size);
            pieces.push(piece);
        }
        if let Some(expected) = request.expected_size
            && expected != size
        {
            return Err(Error::InvalidArgument(format!(
                "the parts make {size} bytes, but x-amz-mp-object-size says {expected}"
            )));
        }
        let checksums = whole_checksums(upload.declared(), &pieces);
        for (name, stated) in &request.checksums {
            let found = checksums.as_ref().and_then(|c| c.values.get(name).cloned());
            let found = match found {
                Some(found) => found,
                None => self.read_checksum(upload, &pieces, name)?,
            };
            // Of a composite checksum the count of parts may be left out.
            if *stated != found && found.rsplit_once('-').map(|(value, _)| value) != Some(stated) {
                return Err(Error::BadDigest(format!("{name} of the object is {found}, not {stated}")));
            }
        }
        let etag = whole_etag(&pieces, checksums.as_ref());
        let part_checksums = part_checksums(checksums.as_ref(), &pieces);
        Ok(Plan { pieces, ends, etag, checksums, part_checksums })
    }

    /// Computes a checksum over all parts by reading them.
    fn read_checksum(&self, upload: &Upload, pieces: &[Piece], name: &str) -> Result<String> {
        let algorithm = Algorithm::from_name(name)
            .ok_or_else(|| Error::InvalidArgument(format!("checksum algorithm {name} is not known")))?;
        let fail = |error| Error::io("read the parts of upload", &upload.id, error);
        let mut digester = Digester::new(false, [algorithm]);
        let mut buffer = vec![0; 1 << 20];
        for piece in pieces {
            let (file, start) = self.piece_file(upload, piece)?;
            let mut at = 0;
            while at < piece.info.size {
                let step = buffer.len().min(usize::try_from(piece.info.size - at).unwrap_or(buffer.len()));
                file.read_exact_at(&mut buffer[..step], start + at).map_err(fail)?;
                digester.update(&buffer[..step]);
                at += step as u64;
            }
        }
        Ok(digester.finish().base64(algorithm).unwrap_or_default())
    }
}

/// Compares a stored part with what the client says of it.
fn check_part(stored: &PartInfo, wanted: &CompletedPart) -> Result<()> {
    let refuse = |reason| Err(Error::InvalidPart { number: stored.number, reason });
    if let Some(etag) = &wanted.etag
        && etag.trim_matches('"') != stored.etag
    {
        return refuse(format!("its ETag is {}, not {etag}", stored.etag));
    }
    for (name, value) in &wanted.checksums {
        // One that was not kept cannot be compared.
        if let Some(found) = stored.checksums.as_ref().and_then(|c| c.values.get(name))
            && found != value
        {
            return refuse(format!("its {name} is {found}, not {value}"));
        }
    }
    Ok(())
}

/// The object's checksum, made of those of its parts.
fn whole_checksums(declared: Option<(String, ChecksumType)>, pieces: &[Piece]) -> Option<Checksums> {
    let (algorithm, kind) =
        declared.unwrap_or_else(|| (Algorithm::Crc64Nvme.name().to_owned(), ChecksumType::FullObject));
    let parts: Option<Vec<(Vec<u8>, u64)>> = pieces
        .iter()
        .map(|piece| {
            let value = piece.info.checksums.as_ref()?.values.get(&algorithm)?;
            Some((STANDARD.decode(value).ok()?, piece.info.size))
        })
        .collect();
    let parts = parts?;
    let known = Algorithm::from_name(&algorithm)?;
    let value = match kind {
        ChecksumType::FullObject => STANDARD.encode(combine(known, &parts)?),
        ChecksumType::Composite => {
            let mut digester = Digester::new(false, [known]);
            for (value, _) in &parts {
                digester.update(value);
            }
            format!("{}-{}", digester.finish().base64(known)?, parts.len())
        }
    };
    Some(Checksums { values: [(algorithm.clone(), value)].into(), algorithm, kind })
}

/// The parts' own checksums by the object's algorithm, when all of them have one.
fn part_checksums(whole: Option<&Checksums>, pieces: &[Piece]) -> Vec<String> {
    let Some(whole) = whole else { return Vec::new() };
    let value = |piece: &Piece| piece.info.checksums.as_ref()?.values.get(&whole.algorithm).cloned();
    pieces.iter().map(value).collect::<Option<_>>().unwrap_or_default()
}

/// The CRC of joined data from those of its pieces.
fn combine(algorithm: Algorithm, parts: &[(Vec<u8>, u64)]) -> Option<Vec<u8>> {
    let crc = match algorithm {
        Algorithm::Crc32 => CrcAlgorithm::Crc32IsoHdlc,
        Algorithm::Crc32c => CrcAlgorithm::Crc32Iscsi,
        Algorithm::Crc64Nvme => CrcAlgorithm::Crc64Nvme,
        Algorithm::Sha1 | Algorithm::Sha256 => return None,
    };
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |n, &b| n << 8 | u64::from(b));
    let width = algorithm.width();
    let mut joined: Option<u64> = None;
    for (value, size) in parts {
        if value.len() != width {
            return None;
        }
        let value = number(value);
        joined = Some(match joined {
            None => value,
            Some(before) => crc_fast::checksum_combine(crc, before, value, *size),
        });
    }
    Some(joined?.to_be_bytes()[8 - width..].to_vec())
}

/// `<md5 of the parts' md5s>-<count>`, or when the parts' ETags are no MD5s the form with the checksum.
fn whole_etag(pieces: &[Piece], checksums: Option<&Checksums>) -> String {
    let md5s: Option<Vec<Vec<u8>>> =
        pieces.iter().map(|p| hex::decode(&p.info.etag).ok().filter(|md5| md5.len() == 16)).collect();
    let count = pieces.len();
    if let Some(md5s) = md5s {
        return format!("{}-{count}", hex::encode(Md5::digest(md5s.concat())));
    }
    match checksums.and_then(|c| Some((c, c.values.get(&c.algorithm)?))) {
        Some((checksums, value)) => format!("{}-{value}", checksums.algorithm),
        None => {
            let etags: Vec<&str> = pieces.iter().map(|p| p.info.etag.as_str()).collect();
            format!("{}-{count}", hex::encode(Md5::digest(etags.join(";"))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;
    use test_case::test_case;

    fn piece(number: u32, data: &[u8], algorithm: Algorithm) -> Piece {
        let mut digester = Digester::new(true, [algorithm]);
        digester.update(data);
        let digests = digester.finish();
        let values = [(algorithm.name().to_owned(), digests.base64(algorithm).unwrap())].into();
        Piece {
            info: PartInfo {
                number,
                size: data.len() as u64,
                etag: digests.md5_hex().unwrap(),
                modified: UNIX_EPOCH,
                checksums: Some(Checksums {
                    algorithm: algorithm.name().into(),
                    kind: ChecksumType::FullObject,
                    values,
                }),
            },
            assembled_at: None,
        }
    }

    #[test_case(Algorithm::Crc32)]
    #[test_case(Algorithm::Crc32c)]
    #[test_case(Algorithm::Crc64Nvme)]
    fn combined_is_that_of_the_whole(algorithm: Algorithm) {
        let parts: [&[u8]; 4] = [b"1234", b"", b"5", b"6789"];
        let pieces: Vec<Piece> = parts.iter().zip(1..).map(|(data, n)| piece(n, data, algorithm)).collect();
        let declared = Some((algorithm.name().to_owned(), ChecksumType::FullObject));
        let whole = piece(1, b"123456789", algorithm).info.checksums;
        assert_eq!(whole_checksums(declared, &pieces), whole);
    }

    #[test]
    fn composite_is_that_of_the_checksums() {
        let pieces = [piece(1, b"a", Algorithm::Sha256), piece(2, b"b", Algorithm::Sha256)];
        let checksums = whole_checksums(Some(("SHA256".into(), ChecksumType::Composite)), &pieces).unwrap();
        let mut digester = Digester::new(false, [Algorithm::Sha256]);
        for part in ["a", "b"] {
            let mut part_digester = Digester::new(false, [Algorithm::Sha256]);
            part_digester.update(part.as_bytes());
            digester.update(part_digester.finish().get(Algorithm::Sha256).unwrap());
        }
        let expected = format!("{}-2", digester.finish().base64(Algorithm::Sha256).unwrap());
        assert_eq!(checksums.values["SHA256"], expected);
        assert_eq!(whole_checksums(Some(("CRC32".into(), ChecksumType::Composite)), &pieces), None);
    }

    #[test]
    fn etags() {
        let pieces = [piece(1, b"a", Algorithm::Crc64Nvme), piece(2, b"b", Algorithm::Crc64Nvme)];
        let md5s = [Md5::digest(b"a"), Md5::digest(b"b")].concat();
        assert_eq!(whole_etag(&pieces, None), format!("{}-2", hex::encode(Md5::digest(md5s))));
        let mut odd = pieces.clone();
        odd[0].info.etag = "CRC64NVME-AAAAAAAAAAA=".into();
        let checksums = whole_checksums(None, &odd).unwrap();
        assert_eq!(
            whole_etag(&odd, Some(&checksums)),
            format!("CRC64NVME-{}", checksums.values["CRC64NVME"])
        );
    }
}
