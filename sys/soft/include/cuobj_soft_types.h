// Types that the server's and the client's header share, and the build's generation switch.
//
// These headers describe, in the project's own words, the class interface that NVIDIA documents in
// "cuObjServer API Specification" and "cuObjClient API Specification" (docs.nvidia.com,
// gpudirect-storage/cuobject). Names, values, signatures and sizes are those of the vendor's
// libraries, so that a program built against either set of headers runs with either library.
//
// CUOBJ_SOFT_GENERATION chooses the shape that a program sees:
//   1 (default)  server 1.x with its base class RDMAConnection, client 1.2
//   2            server 2.x without the base class, client 1.3 and later
// It must be the same for the library and for what is compiled against it.
#ifndef CUOBJ_SOFT_TYPES_H
#define CUOBJ_SOFT_TYPES_H

#include <cstddef>
#include <cstdint>
#include <sys/types.h>

#ifndef CUOBJ_SOFT_GENERATION
#define CUOBJ_SOFT_GENERATION 1
#endif

#if CUOBJ_SOFT_GENERATION != 1 && CUOBJ_SOFT_GENERATION != 2
#error "CUOBJ_SOFT_GENERATION must be 1 or 2"
#endif

// Tells a program at compile time that these are the software SDK's headers.
#define CUOBJ_SOFT_SDK 1

// Marks what the shared libraries export; everything else is hidden.
#define CUOBJ_SOFT_API __attribute__((visibility("default")))

// Newer members beside the older ones. The library itself is built with all of them, so that
// programs compiled against older and newer headers both find what they call.
#if CUOBJ_SOFT_GENERATION >= 2 || defined(CUOBJ_SOFT_BUILD)
#define CUOBJ_SOFT_NEWER_MEMBERS 1
#else
#define CUOBJ_SOFT_NEWER_MEMBERS 0
#endif

// Result of the client's functions that move no bytes.
typedef enum cuObjErr_enum {
    CU_OBJ_SUCCESS = 0,
    CU_OBJ_FAIL = 1,
} cuObjErr_t;

// Wire protocol. The constructors take any value, as the vendor's do.
typedef enum cuObjProto_enum {
    CUOBJ_PROTO_RDMA_DC_V1 = 1001,
    CUOBJ_PROTO_MAX,
} cuObjProto_t;

// Direction of a transfer, named as the S3 request is: GET fills the client's memory.
typedef enum cuObjOpType_enum {
    CUOBJ_GET = 0,
    CUOBJ_PUT = 1,
    CUOBJ_INVALID = 9999,
} cuObjOpType_t;

#endif
