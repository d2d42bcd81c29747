// The one type of cuFile that cuObject's callbacks need: what a transfer's RDMA descriptor is.
//
// Where the real cufile.h is on the include path before this one, that one serves as well.
#ifndef CUOBJ_SOFT_CUFILE_H
#define CUOBJ_SOFT_CUFILE_H

// Version 2 describes an 81-character descriptor; desc_len counts its terminating NUL.
typedef struct cufileRDMAInfo {
    int version;
    int desc_len;
    const char* desc_str;
} cufileRDMAInfo_t;

#endif
