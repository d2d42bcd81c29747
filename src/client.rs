//! The client: signed requests, RDMA sessions, and the logic of `cuobjtest`.
