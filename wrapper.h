/*
 * The C ABI between Rust and the C++ classes of cuObject (cuObjServer, cuObjClient).
 *
 * sys/shim/ implements it over NVIDIA's libraries or the software SDK; bindgen reads it. It says
 * what the classes can do and holds no policy: limits, pools and retries belong to the callers.
 *
 * Conventions
 *
 *  1. Handles are opaque. A handle is valid from the call that filled it to the call that ends it,
 *     and belongs to the server or client it was made with. Nothing here checks a stale handle.
 *  2. Every function that can fail returns a vgw_cuobj_status. Out parameters are written on
 *     VGW_CUOBJ_OK only, except where the declaration says otherwise.
 *  3. VGW_CUOBJ_OK means that the library was called and did not refuse. A number that the library
 *     returns (bytes moved, negative errno) goes unchanged into a `result` parameter.
 *  4. Text and arrays are a pointer and a length. Text need not end in NUL and holds none. A length
 *     of 0 allows a null pointer; any other null pointer gives VGW_CUOBJ_NULL_ARGUMENT, unless the
 *     declaration calls it optional.
 *  5. Units stand in the names: _bytes, _ns, _us. Offsets and sizes are bytes.
 *  6. Who frees what: whatever a function hands out is ended by the function named at its
 *     declaration, once, before its server or client is destroyed. Memory given for registration
 *     stays the caller's and must stay mapped until it has been deregistered. Strings given in are
 *     copied or not kept.
 *  7. Threads: functions of one server or one client may be called from several threads, but a
 *     channel is driven by one thread at a time, and create and destroy run alone. Callbacks may
 *     come on a thread of the library.
 *  8. No C++ exception leaves a function; it becomes VGW_CUOBJ_EXCEPTION. Callbacks must not unwind
 *     or throw.
 *  9. The last parameter `error` names the caller's buffer for a text that says what went wrong.
 *     The text always ends in NUL and is cut to fit; on success it is empty. The buffer is optional.
 * 10. Symbols begin with vgw_cuobj_; nothing else of the shim is exported. vgw_cuobj_server_* exists
 *     in builds with the server only, vgw_cuobj_client_* in builds with the client only.
 */
#ifndef VGW_CUOBJ_WRAPPER_H
#define VGW_CUOBJ_WRAPPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status, text, identification ------------------------------------------------------------ */

/* Counts the incompatible changes of this file; vgw_cuobj_abi_version() gives the shim's. */
#define VGW_CUOBJ_ABI_VERSION 1u

/* How a call into the shim went; VGW_CUOBJ_OK and the reasons below. */
typedef int32_t vgw_cuobj_status;
#define VGW_CUOBJ_OK 0
/* A pointer that is not optional was null. The library was not called. */
#define VGW_CUOBJ_NULL_ARGUMENT 1
/* An argument cannot be expressed in the library's types. The library was not called. */
#define VGW_CUOBJ_BAD_ARGUMENT 2
/* The library answered null, an error code, or "none free". */
#define VGW_CUOBJ_REFUSED 3
/* The library threw; the text is the exception's. */
#define VGW_CUOBJ_EXCEPTION 4
/* The library that this shim was compiled against has no such function. */
#define VGW_CUOBJ_UNSUPPORTED 5

/* A caller's buffer for error text (convention 9). */
typedef struct vgw_cuobj_text {
    char *data;
    size_t capacity_bytes;
} vgw_cuobj_text;

/* Abilities of the libraries, found when the shim was compiled. */
/* cuObjServer / cuObjClient is linked. */
#define VGW_CUOBJ_HAS_SERVER 0x01u
#define VGW_CUOBJ_HAS_CLIENT 0x02u
/* The server tells its effective tunables. */
#define VGW_CUOBJ_HAS_EFFECTIVE_TUNABLES 0x04u
/* Telemetry flags of server / client take a second mask. */
#define VGW_CUOBJ_HAS_SERVER_TELEMETRY_MASK 0x08u
#define VGW_CUOBJ_HAS_CLIENT_TELEMETRY_MASK 0x10u
/* Releasing a token can report the error that made it useless. */
#define VGW_CUOBJ_HAS_TOKEN_RESET 0x20u
/* The server / client class has the connection base class of 1.x. */
#define VGW_CUOBJ_HAS_CONNECTION_BASE 0x40u

/* Which libraries are behind this ABI. All text is static and ends in NUL. */
typedef struct vgw_cuobj_provider_info {
    /* "nvidia" or "soft". */
    const char *name;
    /* File names as found when building ("libcuobjserver.so.1.2.0"), empty when not linked. */
    const char *server_library;
    const char *client_library;
    /* What the libraries say of themselves when running, empty where they do not. */
    const char *server_version;
    const char *client_version;
    /* VGW_CUOBJ_HAS_… */
    uint32_t abilities;
} vgw_cuobj_provider_info;

/* The VGW_CUOBJ_ABI_VERSION that the shim was compiled with. */
uint32_t vgw_cuobj_abi_version(void);

/* Tells what is behind this ABI. */
vgw_cuobj_status vgw_cuobj_provider(vgw_cuobj_provider_info *out, vgw_cuobj_text error);

/*
 * For tests: the next function of this ABI that the calling thread calls throws inside its guard.
 * `kind`: 0 disarms, 1 a std::exception, 2 an object that is no std::exception, 3 std::bad_alloc.
 */
void vgw_cuobj_test_throw(int32_t kind);

/* ---- Telemetry ------------------------------------------------------------------------------- */

#define VGW_CUOBJ_TELEMETRY_INFO 1u
#define VGW_CUOBJ_TELEMETRY_DEBUG 2u
#define VGW_CUOBJ_TELEMETRY_ERROR 4u

/* Takes one complete line without its end. May run on any thread, several at once. */
typedef void (*vgw_cuobj_line_fn)(void *context, const char *line, size_t length_bytes);

/*
 * Sends what the library says to `sink`. Call before the first server (client) is created; a later
 * call replaces the sink and the flags. `context` and `sink` must stay valid to the end of the
 * process: the library keeps its stream as long as any of its objects lives.
 */
vgw_cuobj_status vgw_cuobj_server_telemetry(vgw_cuobj_line_fn sink, void *context, uint32_t flags,
                                            vgw_cuobj_text error);
vgw_cuobj_status vgw_cuobj_client_telemetry(vgw_cuobj_line_fn sink, void *context, uint32_t flags,
                                            vgw_cuobj_text error);

/* Changes what is said. `second_mask` must be 0 where the library takes none. */
vgw_cuobj_status vgw_cuobj_server_telemetry_flags(uint32_t flags, uint32_t second_mask, vgw_cuobj_text error);
vgw_cuobj_status vgw_cuobj_client_telemetry_flags(uint32_t flags, uint32_t second_mask, vgw_cuobj_text error);

/* Ends telemetry of the library; only when no server (client) exists. */
vgw_cuobj_status vgw_cuobj_server_telemetry_stop(vgw_cuobj_text error);
vgw_cuobj_status vgw_cuobj_client_telemetry_stop(vgw_cuobj_text error);

/* ---- Server: life ---------------------------------------------------------------------------- */

/* A cuObjServer: one RDMA address with its device, queue pairs and registrations. */
typedef struct vgw_cuobj_server vgw_cuobj_server;
/* Memory registered with a server, or a view into it. */
typedef struct vgw_cuobj_buffer vgw_cuobj_buffer;

#define VGW_CUOBJ_DELAY_NONE 0
#define VGW_CUOBJ_DELAY_BATCH 1
#define VGW_CUOBJ_DELAY_ENTRY 2
#define VGW_CUOBJ_DELAY_ADAPTIVE 3

/* Tunables of a server endpoint. The library checks none of them. */
typedef struct vgw_cuobj_tunables {
    /* DC initiators, and so channels. */
    int32_t num_dcis;
    /* Entries of each completion queue. */
    uint32_t cq_depth;
    /* The key that DC targets of clients expect. */
    uint64_t dc_key;
    int32_t service_level;
    int32_t pkey_index;
    /* Scatter-gather entries of a work request. */
    int32_t max_sge;
    /* Outstanding READs and atomics; 0 takes the device's. */
    int32_t max_rd_atomic;
    uint32_t hop_limit;
    uint32_t traffic_class;
    /* Sleep between polls of a synchronous call. */
    uint32_t delay_interval_ns;
    /* VGW_CUOBJ_DELAY_… */
    int32_t delay_mode;
    /* Local ACK timeout as an exponent: 4.096 us * 2^timeout. */
    uint8_t timeout;
    uint8_t retry_count;
    /* Whether a failed completion takes the queue pair through a reset. */
    bool qp_reset_on_failure;
} vgw_cuobj_tunables;

/* The library's defaults. */
vgw_cuobj_status vgw_cuobj_server_default_tunables(vgw_cuobj_tunables *out, vgw_cuobj_text error);

/*
 * Makes a server on a literal IPv4 or IPv6 address (no brackets). VGW_CUOBJ_OK does not mean that
 * it has an RDMA session: ask vgw_cuobj_server_connected. `tunables` is optional: null takes the
 * library's. End it with vgw_cuobj_server_destroy.
 */
vgw_cuobj_status vgw_cuobj_server_create(const char *address, size_t address_length, uint16_t port,
                                         const vgw_cuobj_tunables *tunables, vgw_cuobj_server **out,
                                         vgw_cuobj_text error);

/* Ends a server; everything made with it must have been ended before. Null does nothing. */
vgw_cuobj_status vgw_cuobj_server_destroy(vgw_cuobj_server *server, vgw_cuobj_text error);

/* Whether the server has an RDMA session. */
vgw_cuobj_status vgw_cuobj_server_connected(vgw_cuobj_server *server, bool *out, vgw_cuobj_text error);

/* The tunables in effect; VGW_CUOBJ_UNSUPPORTED where the library does not tell. */
vgw_cuobj_status vgw_cuobj_server_tunables(vgw_cuobj_server *server, vgw_cuobj_tunables *out,
                                           vgw_cuobj_text error);

/* ---- Server: memory -------------------------------------------------------------------------- */

/* Page-aligned host memory. Free it with vgw_cuobj_server_free_host_buffer. */
vgw_cuobj_status vgw_cuobj_server_alloc_host_buffer(vgw_cuobj_server *server, size_t size_bytes, void **out,
                                                    vgw_cuobj_text error);
/* Null does nothing. Needs no server: the buffer may outlive it. */
void vgw_cuobj_server_free_host_buffer(void *start);

/* A piece of host memory. */
typedef struct vgw_cuobj_segment {
    void *start;
    size_t size_bytes;
} vgw_cuobj_segment;

/* A piece of a registered buffer. */
typedef struct vgw_cuobj_range {
    uint64_t offset_bytes;
    size_t size_bytes;
} vgw_cuobj_range;

/* Registers host memory. End it with vgw_cuobj_server_deregister. */
vgw_cuobj_status vgw_cuobj_server_register(vgw_cuobj_server *server, void *start, size_t size_bytes,
                                           vgw_cuobj_buffer **out, vgw_cuobj_text error);
/* Registers 1 to 10 pieces as one buffer. End it with vgw_cuobj_server_deregister. */
vgw_cuobj_status vgw_cuobj_server_register_list(vgw_cuobj_server *server, const vgw_cuobj_segment *segments,
                                                size_t segment_count, vgw_cuobj_buffer **out,
                                                vgw_cuobj_text error);
/* Ends a registration; frees no memory. Null does nothing. */
vgw_cuobj_status vgw_cuobj_server_deregister(vgw_cuobj_server *server, vgw_cuobj_buffer *buffer,
                                             vgw_cuobj_text error);

/*
 * Makes a buffer of 1 to 10 pieces of `base`, which must have been registered as one piece and must
 * outlive the view. The library checks the sum of the sizes only: the caller checks every range.
 * End it with vgw_cuobj_server_put_view.
 */
vgw_cuobj_status vgw_cuobj_server_get_view(vgw_cuobj_server *server, vgw_cuobj_buffer *base,
                                           const vgw_cuobj_range *ranges, size_t range_count,
                                           vgw_cuobj_buffer **out, vgw_cuobj_text error);
/* Ends a view; its base stays registered. */
vgw_cuobj_status vgw_cuobj_server_put_view(vgw_cuobj_server *server, vgw_cuobj_buffer *view,
                                           vgw_cuobj_text error);

/* ---- Server: channels and operations --------------------------------------------------------- */

/* VGW_CUOBJ_REFUSED when none is free. End it with vgw_cuobj_server_free_channel. */
vgw_cuobj_status vgw_cuobj_server_allocate_channel(vgw_cuobj_server *server, uint16_t *out,
                                                   vgw_cuobj_text error);
/* Not while operations of the channel are in flight. */
vgw_cuobj_status vgw_cuobj_server_free_channel(vgw_cuobj_server *server, uint16_t channel,
                                               vgw_cuobj_text error);

/* One one-sided operation. */
typedef struct vgw_cuobj_operation {
    /* A name for the library's telemetry. */
    const char *key;
    size_t key_length;
    /* The client's descriptor. */
    const char *descriptor;
    size_t descriptor_length;
    vgw_cuobj_buffer *buffer;
    /* Where in the buffer; not with a buffer of several pieces. */
    uint64_t local_offset_bytes;
    /* Address in the client. */
    uint64_t remote_start;
    size_t size_bytes;
    /* Null: the call returns when the operation has completed. Otherwise it returns once submitted,
     * and vgw_cuobj_server_poll gives this value back. Never both kinds on one channel at a time. */
    void *async_handle;
    /* Sleep between polls of a synchronous call; negative takes the server's. */
    int64_t poll_delay_ns;
    uint16_t channel;
} vgw_cuobj_operation;

/* What vgw_cuobj_server_get and _put write to `wc_status` when there was no completion. */
#define VGW_CUOBJ_NO_COMPLETION 0xffffffffu

/*
 * RDMA WRITE to the client (get) and RDMA READ from the client (put). `result`: bytes moved, 0 for
 * an asynchronous operation that was submitted, or a negative errno. `wc_status` is optional: an
 * ibv_wc_status where a synchronous operation completed.
 */
vgw_cuobj_status vgw_cuobj_server_get(vgw_cuobj_server *server, const vgw_cuobj_operation *operation,
                                      int64_t *result, uint32_t *wc_status, vgw_cuobj_text error);
vgw_cuobj_status vgw_cuobj_server_put(vgw_cuobj_server *server, const vgw_cuobj_operation *operation,
                                      int64_t *result, uint32_t *wc_status, vgw_cuobj_text error);

/* Most events of one poll. */
#define VGW_CUOBJ_MAX_EVENTS 16u

/* The end of an asynchronous operation. */
typedef struct vgw_cuobj_event {
    void *async_handle;
    /* ibv_wc_status */
    int64_t wc_status;
} vgw_cuobj_event;

/*
 * Takes completions of a channel without waiting, at most VGW_CUOBJ_MAX_EVENTS. `result` is the
 * library's answer: a count, or a negative errno; with -EIO an operation failed and operations of
 * the channel that are not among the events count as flushed. `count` says how many of `events`
 * were filled, in either case.
 */
vgw_cuobj_status vgw_cuobj_server_poll(vgw_cuobj_server *server, uint16_t channel, vgw_cuobj_event *events,
                                       size_t capacity, size_t *count, int32_t *result,
                                       vgw_cuobj_text error);

/* ---- Client ---------------------------------------------------------------------------------- */

/* A cuObjClient: registers memory, mints tokens, runs the control path. */
typedef struct vgw_cuobj_client vgw_cuobj_client;

#define VGW_CUOBJ_OP_GET 0
#define VGW_CUOBJ_OP_PUT 1

/* What the client asks of the control path. Valid during the callback only. */
typedef struct vgw_cuobj_request {
    /* Start of the part of the user's memory, and its size. */
    void *start;
    size_t size_bytes;
    /* Where the part lies in the object. */
    int64_t offset_bytes;
    /* The descriptor to send to the server, without NUL. */
    const char *descriptor;
    size_t descriptor_length;
    /* VGW_CUOBJ_OP_… */
    int32_t op;
} vgw_cuobj_request;

/*
 * Carries a request to the server. `context` is that of the vgw_cuobj_client_get or _put that
 * caused it. Returns the bytes moved or a negative errno. May run on another thread than the
 * caller's, and more than once for one call.
 */
typedef int64_t (*vgw_cuobj_request_fn)(void *context, const vgw_cuobj_request *request);

/*
 * Makes a client. One per process: its registrations and devices are shared by all of them. End it
 * with vgw_cuobj_client_destroy. NVIDIA's 1.2.0 never returns from here where /proc/modules cannot
 * be opened.
 */
vgw_cuobj_status vgw_cuobj_client_create(vgw_cuobj_request_fn get, vgw_cuobj_request_fn put,
                                         vgw_cuobj_client **out, vgw_cuobj_text error);
/* Null does nothing. */
vgw_cuobj_status vgw_cuobj_client_destroy(vgw_cuobj_client *client, vgw_cuobj_text error);

/* What the library says of itself; NVIDIA's 1.2.0 says true without any device. */
vgw_cuobj_status vgw_cuobj_client_connected(vgw_cuobj_client *client, bool *out, vgw_cuobj_text error);

/* Registers host or CUDA device memory. End it with vgw_cuobj_client_put_descriptor. */
vgw_cuobj_status vgw_cuobj_client_get_descriptor(vgw_cuobj_client *client, void *start, size_t size_bytes,
                                                 vgw_cuobj_text error);
/* Ends the registration that begins at `start`; frees no memory. */
vgw_cuobj_status vgw_cuobj_client_put_descriptor(vgw_cuobj_client *client, void *start,
                                                 vgw_cuobj_text error);
/* Most bytes of one callback for this memory, or -1 for memory that is not registered. */
vgw_cuobj_status vgw_cuobj_client_max_callback_bytes(vgw_cuobj_client *client, void *start, int64_t *result,
                                                     vgw_cuobj_text error);

/*
 * Mints a token for `size_bytes` from `start + buffer_offset_bytes`; `start` is a registered start.
 * `token` ends in NUL. End it with vgw_cuobj_client_put_token.
 */
vgw_cuobj_status vgw_cuobj_client_get_token(vgw_cuobj_client *client, void *start, size_t size_bytes,
                                            size_t buffer_offset_bytes, int32_t op, char **token,
                                            vgw_cuobj_text error);
/* `reason`: 0, or the errno that made the token useless, for libraries that take it. */
vgw_cuobj_status vgw_cuobj_client_put_token(vgw_cuobj_client *client, char *token, int32_t reason,
                                            vgw_cuobj_text error);

/*
 * Reads an object into memory (get), or writes it from memory (put): registers where needed, runs
 * the callback. `context` is optional. `result`: bytes moved or a negative number.
 */
vgw_cuobj_status vgw_cuobj_client_get(vgw_cuobj_client *client, void *context, void *start,
                                      size_t size_bytes, int64_t offset_bytes, int64_t buffer_offset_bytes,
                                      int64_t *result, vgw_cuobj_text error);
vgw_cuobj_status vgw_cuobj_client_put(vgw_cuobj_client *client, void *context, void *start,
                                      size_t size_bytes, int64_t offset_bytes, int64_t buffer_offset_bytes,
                                      int64_t *result, vgw_cuobj_text error);

#define VGW_CUOBJ_MEMORY_SYSTEM 0
#define VGW_CUOBJ_MEMORY_CUDA_MANAGED 1
#define VGW_CUOBJ_MEMORY_CUDA_DEVICE 2
#define VGW_CUOBJ_MEMORY_UNKNOWN 3
#define VGW_CUOBJ_MEMORY_INVALID 4

/* The kind of memory at `start`, VGW_CUOBJ_MEMORY_… `start` may be null: the library judges. */
vgw_cuobj_status vgw_cuobj_client_memory_type(const void *start, int32_t *out, vgw_cuobj_text error);

#ifdef __cplusplus
}
#endif

#endif
