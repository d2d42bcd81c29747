// Masks for setTelemFlags(): which lines go to the stream given to setupTelemetry().
#ifndef CUOBJ_SOFT_CUOBJTELEM_H
#define CUOBJ_SOFT_CUOBJTELEM_H

#define CUOBJ_LOG_PATH_INFO 0x1u
#define CUOBJ_LOG_PATH_DEBUG 0x2u
#define CUOBJ_LOG_PATH_ERROR 0x4u

#endif
