//! What each client sends, and what it takes for success. Facts from the sources that are named.

use super::rules::{self, Rule};
use crate::fixture::crc64nvme;

/// The form in which a client hands its token over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    /// The 81 characters.
    Plain,
    /// With `:<address>:<size>` behind them.
    Suffixed,
    /// versitygw's three headers.
    Triple,
}

/// When a client sends `Range`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ranges {
    Always,
    WhenAsked,
    Never,
}

/// What a client signs with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Signing {
    /// `UNSIGNED-PAYLOAD` and every header.
    Unsigned,
    /// The SHA-256 of an empty body and every header, as SDKs do by themselves.
    EmptyHash,
    /// A URL that covers the token.
    Presigned,
}

/// What a client does once it has been told that its body cannot go by RDMA.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Declined {
    /// Sends or takes the body over HTTP.
    GoesOverHttp,
    /// Tells its caller.
    Fails,
}

/// One client.
pub(crate) struct Client {
    pub(crate) name: &'static str,
    pub(crate) token_header: &'static str,
    pub(crate) form: Form,
    pub(crate) signing: Signing,
    pub(crate) ranges: Ranges,
    pub(crate) puts: bool,
    pub(crate) parts: bool,
    /// Binds a GET to the ETag of a HEAD before it.
    pub(crate) if_match: bool,
    /// Headers of PUT and UploadPart beside the token.
    pub(crate) put_headers: fn(&[u8]) -> Vec<(&'static str, String)>,
    /// Headers of GET beside token and range.
    pub(crate) get_headers: &'static [(&'static str, &'static str)],
    pub(crate) put_done: Rule,
    pub(crate) get_done: Rule,
    pub(crate) declined: Declined,
}

const OCTETS: (&str, &str) = ("content-type", "application/octet-stream");

fn octets(_: &[u8]) -> Vec<(&'static str, String)> {
    vec![(OCTETS.0, OCTETS.1.into())]
}

fn octets_and_crc64(data: &[u8]) -> Vec<(&'static str, String)> {
    vec![(OCTETS.0, OCTETS.1.into()), ("x-amz-checksum-crc64nvme", crc64nvme(data))]
}

fn nothing(_: &[u8]) -> Vec<(&'static str, String)> {
    Vec::new()
}

const MINIO_CPP: Client = Client {
    name: "minio-cpp, and minio-go through its C interface",
    token_header: "x-amz-rdma-token",
    form: Form::Plain,
    signing: Signing::Unsigned,
    ranges: Ranges::WhenAsked,
    puts: true,
    parts: true,
    if_match: false,
    put_headers: octets_and_crc64,
    get_headers: &[],
    put_done: rules::put_minio,
    get_done: rules::get_by_reply,
    declined: Declined::GoesOverHttp,
};

/// In the order of the survey.
pub(crate) const CLIENTS: &[Client] = &[
    MINIO_CPP,
    Client { name: "minio-cpp before pull request 244", form: Form::Suffixed, ..MINIO_CPP },
    Client {
        name: "minio-rs",
        ranges: Ranges::Never,
        get_done: rules::get_by_reply_or_fail,
        declined: Declined::Fails,
        ..MINIO_CPP
    },
    Client {
        name: "NIXL, generic object engine",
        ranges: Ranges::Always,
        put_headers: |data| {
            let mut headers = octets_and_crc64(data);
            headers.push(("x-amz-checksum-algorithm", "CRC64NVME".into()));
            // It signs whatever header is there.
            headers.push(("content-length", "0".into()));
            headers
        },
        put_done: rules::put_strict,
        get_done: rules::get_strict,
        declined: Declined::Fails,
        ..MINIO_CPP
    },
    Client {
        name: "NIXL, Dell engine",
        token_header: "x-rdma-info",
        signing: Signing::EmptyHash,
        parts: false,
        put_headers: nothing,
        put_done: rules::put_by_status,
        get_done: rules::get_by_status,
        declined: Declined::Fails,
        ..MINIO_CPP
    },
    Client {
        name: "Dell storage-performance-tool, SNIA draft",
        token_header: "x-amz-meta-rdma-token",
        signing: Signing::EmptyHash,
        parts: false,
        put_headers: nothing,
        put_done: rules::put_by_status,
        get_done: rules::get_by_status,
        declined: Declined::Fails,
        ..MINIO_CPP
    },
    Client {
        name: "elbencho, plugin s3rdma_minio",
        ranges: Ranges::Always,
        put_headers: octets,
        get_done: rules::get_by_reply_or_fail,
        declined: Declined::Fails,
        ..MINIO_CPP
    },
    Client {
        name: "NVIDIA multi-storage-client",
        if_match: true,
        put_done: rules::put_multi_storage,
        get_done: rules::get_strict,
        declined: Declined::Fails,
        ..MINIO_CPP
    },
    Client {
        name: "noobaa-core",
        signing: Signing::EmptyHash,
        put_headers: |_| vec![("x-amz-rdma-agent", "cuobj".into())],
        get_headers: &[("x-amz-rdma-agent", "cuobj")],
        put_done: rules::noobaa,
        get_done: rules::noobaa,
        declined: Declined::Fails,
        ..MINIO_CPP
    },
    Client {
        name: "versitygw cuobjclient",
        token_header: "x-cuobj-rdma-descr",
        form: Form::Triple,
        signing: Signing::EmptyHash,
        ranges: Ranges::Never,
        parts: false,
        put_headers: nothing,
        put_done: rules::versity_put,
        get_done: rules::versity_get,
        declined: Declined::Fails,
        ..MINIO_CPP
    },
    Client {
        name: "Cloudian aws-sdk-cpp",
        ranges: Ranges::Always,
        put_headers: |data| {
            vec![
                ("x-amz-sdk-checksum-algorithm", "CRC64NVME".into()),
                ("x-amz-checksum-crc64nvme", crc64nvme(data)),
            ]
        },
        put_done: rules::put_cloudian,
        get_done: rules::get_cloudian,
        ..MINIO_CPP
    },
    Client {
        name: "KvikIO, open pull request",
        form: Form::Suffixed,
        ranges: Ranges::Always,
        puts: false,
        parts: false,
        get_done: rules::get_by_reply_or_fail,
        declined: Declined::Fails,
        ..MINIO_CPP
    },
    Client {
        name: "aws-c-s3, NVIDIA's fork",
        if_match: true,
        put_headers: |data| {
            vec![
                ("x-amz-checksum-crc32c", rules::crc32c(data)),
                ("x-amz-sdk-checksum-algorithm", "CRC32C".into()),
            ]
        },
        get_headers: &[("x-amz-checksum-mode", "ENABLED"), ("content-length", "0")],
        put_done: rules::put_aws,
        get_done: rules::get_by_reply,
        ..MINIO_CPP
    },
    Client {
        name: "the specification, presigned",
        signing: Signing::Presigned,
        put_headers: nothing,
        put_done: rules::put_strict,
        get_done: rules::get_strict,
        ..MINIO_CPP
    },
    Client {
        name: "LMCache, open pull request",
        ranges: Ranges::Always,
        puts: false,
        parts: false,
        // It takes a missing reply for success, so that only the bytes can tell.
        get_done: rules::get_by_status,
        declined: Declined::Fails,
        ..MINIO_CPP
    },
];
