//! Completion statuses, by the names of `enum ibv_wc_status`.

use std::fmt;

/// Status of a work completion (`enum ibv_wc_status` of libibverbs, `ibv_poll_cq(3)`).
///
/// Kept as the number the library gave, so an unknown one is shown and never undefined.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WcStatus(pub u32);

macro_rules! statuses {
    ($($name:ident = $code:literal, $text:literal, $doc:literal;)*) => {
        impl WcStatus {
            $(#[doc = $doc] pub const $name: WcStatus = WcStatus($code);)*
            /// Every status that libibverbs defines, in the order of their numbers.
            pub const ALL: &'static [WcStatus] = &[$(WcStatus($code)),*];
            /// The name in `<infiniband/verbs.h>`, or `IBV_WC_UNKNOWN`.
            pub fn name(self) -> &'static str {
                match self.0 { $($code => $text,)* _ => "IBV_WC_UNKNOWN" }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, "IBV_WC_SUCCESS", "The operation completed.";
    LOC_LEN_ERR = 1, "IBV_WC_LOC_LEN_ERR", "Local length error.";
    LOC_QP_OP_ERR = 2, "IBV_WC_LOC_QP_OP_ERR", "Local queue pair operation error.";
    LOC_EEC_OP_ERR = 3, "IBV_WC_LOC_EEC_OP_ERR", "Local end-to-end context operation error.";
    LOC_PROT_ERR = 4, "IBV_WC_LOC_PROT_ERR", "The local buffer is not registered as the operation needs.";
    WR_FLUSH_ERR = 5, "IBV_WC_WR_FLUSH_ERR", "Flushed: an earlier operation of the queue pair failed.";
    MW_BIND_ERR = 6, "IBV_WC_MW_BIND_ERR", "Memory window bind error.";
    BAD_RESP_ERR = 7, "IBV_WC_BAD_RESP_ERR", "An unexpected transport opcode came back.";
    LOC_ACCESS_ERR = 8, "IBV_WC_LOC_ACCESS_ERR", "Protection error on a local buffer during a write with immediate.";
    REM_INV_REQ_ERR = 9, "IBV_WC_REM_INV_REQ_ERR", "The responder found the request invalid.";
    REM_ACCESS_ERR = 10, "IBV_WC_REM_ACCESS_ERR", "The remote memory region does not allow the access (rkey, bounds, rights).";
    REM_OP_ERR = 11, "IBV_WC_REM_OP_ERR", "The responder could not complete the operation.";
    RETRY_EXC_ERR = 12, "IBV_WC_RETRY_EXC_ERR", "No answer from the remote side within the retries (gone, unreachable, wrong DC key).";
    RNR_RETRY_EXC_ERR = 13, "IBV_WC_RNR_RETRY_EXC_ERR", "The remote side stayed not ready.";
    LOC_RDD_VIOL_ERR = 14, "IBV_WC_LOC_RDD_VIOL_ERR", "Local reliable datagram domain violation.";
    REM_INV_RD_REQ_ERR = 15, "IBV_WC_REM_INV_RD_REQ_ERR", "Remote invalid reliable datagram request.";
    REM_ABORT_ERR = 16, "IBV_WC_REM_ABORT_ERR", "The responder aborted the operation.";
    INV_EECN_ERR = 17, "IBV_WC_INV_EECN_ERR", "Invalid end-to-end context number.";
    INV_EEC_STATE_ERR = 18, "IBV_WC_INV_EEC_STATE_ERR", "Invalid end-to-end context state.";
    FATAL_ERR = 19, "IBV_WC_FATAL_ERR", "Fatal transport error.";
    RESP_TIMEOUT_ERR = 20, "IBV_WC_RESP_TIMEOUT_ERR", "The response timed out.";
    GENERAL_ERR = 21, "IBV_WC_GENERAL_ERR", "Any other failure.";
    TM_ERR = 22, "IBV_WC_TM_ERR", "Tag matching error.";
    TM_RNDV_INCOMPLETE = 23, "IBV_WC_TM_RNDV_INCOMPLETE", "Tag matching rendezvous incomplete.";
}

impl WcStatus {
    /// True for [`WcStatus::SUCCESS`].
    pub fn is_success(self) -> bool {
        self == Self::SUCCESS
    }

    /// True when the status blames the client's memory or token rather than the fabric.
    pub fn blames_remote_memory(self) -> bool {
        matches!(self, Self::REM_ACCESS_ERR | Self::REM_INV_REQ_ERR | Self::REM_OP_ERR)
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl fmt::Debug for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::WcStatus;

    #[test]
    fn numbers_and_names_are_those_of_libibverbs() {
        for (i, status) in WcStatus::ALL.iter().enumerate() {
            assert_eq!(status.0 as usize, i);
            assert!(status.name().starts_with("IBV_WC_"));
        }
        assert_eq!(WcStatus(10).to_string(), "IBV_WC_REM_ACCESS_ERR (10)");
        assert_eq!(WcStatus(99).to_string(), "IBV_WC_UNKNOWN (99)");
    }
}
