// Which libraries are behind the ABI. The build passes their names as macros.
#include "internal.h"

#ifndef VGW_CUOBJ_PROVIDER_NAME
#error "the build defines VGW_CUOBJ_PROVIDER_NAME"
#endif

extern "C" uint32_t vgw_cuobj_abi_version(void) {
    return VGW_CUOBJ_ABI_VERSION;
}

extern "C" vgw_cuobj_status vgw_cuobj_provider(vgw_cuobj_provider_info *out, vgw_cuobj_text error) {
    return vgw_cuobj::guarded(error, [&]() -> vgw_cuobj_status {
        if (out == nullptr) {
            return vgw_cuobj::null_argument(error, "out");
        }
        vgw_cuobj_provider_info info = {};
        info.name = VGW_CUOBJ_PROVIDER_NAME;
        info.server_library = "";
        info.client_library = "";
        info.server_version = "";
        info.client_version = "";
#ifdef VGW_CUOBJ_SERVER
        info.server_library = VGW_CUOBJ_SERVER_LIBRARY;
        info.server_version = vgw_cuobj::server_version();
        info.abilities |= VGW_CUOBJ_HAS_SERVER | vgw_cuobj::server_abilities();
#endif
#ifdef VGW_CUOBJ_CLIENT
        info.client_library = VGW_CUOBJ_CLIENT_LIBRARY;
        info.client_version = vgw_cuobj::client_version();
        info.abilities |= VGW_CUOBJ_HAS_CLIENT | vgw_cuobj::client_abilities();
#endif
        *out = info;
        return VGW_CUOBJ_OK;
    });
}
