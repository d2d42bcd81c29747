# syntax=docker/dockerfile:1
#
# Targets:
#   gateway         vgwrdma, on the software SDK, or on NVIDIA's (below)
#   cuobjtest-gpu   the client for GPU memory, on NVIDIA's cuObject client
#   cuobjtest-host  the client for host memory
#   ci              builds and tests in an image that carries the vendor's SDK
#
#   docker build --target gateway -t vgwrdma .
#   docker build --target gateway --build-context sdk=DIR -t vgwrdma .
#
# DIR is a folder with NVIDIA's SDK: include/ with its headers (cuobj*.h, cufile.h, cuda.h), lib/ or lib64/ with
# libcuobjserver, libcuobjclient and libcufile. None of it is in this repository. Without that context the
# gateway and the host client get the software SDK; cuobjtest-gpu then has to be told so (CUOBJ_PROVIDER=soft).
#
# Bases: Debian 12 by default; for Rocky Linux 9 give both (the target ci needs a Debian base):
#   --build-arg BUILD_BASE=docker.io/rockylinux/rockylinux:9 --build-arg RUN_BASE=docker.io/rockylinux/rockylinux:9
#
# Run the gateway with the RDMA devices and no memlock limit, on the host's network:
#   docker run --network host --device /dev/infiniband --ulimit memlock=-1 --cap-add IPC_LOCK \
#       -e ROOT_ACCESS_KEY_ID -e ROOT_SECRET_ACCESS_KEY -v /data:/data vgwrdma --rdma-ip 192.168.100.1 posix /data

ARG BUILD_BASE=docker.io/library/debian:12-slim
ARG RUN_BASE=docker.io/library/debian:12-slim

# An empty SDK, used unless --build-context sdk=DIR is given.
FROM scratch AS sdk

FROM ${BUILD_BASE} AS toolchain
WORKDIR /src
ENV PATH=/root/.cargo/bin:${PATH}
COPY scripts/ scripts/
RUN scripts/container.sh toolchain

FROM toolchain AS source
COPY . .
COPY --from=sdk / /opt/cuobj/
# nvidia, soft, or auto.
ARG CUOBJ_PROVIDER=auto
# The revision that --version shows: $(git rev-parse --short=12 HEAD). The history is not in the image.
ARG VGWRDMA_GIT_HASH=
ENV CUOBJ_PROVIDER=${CUOBJ_PROVIDER} VGWRDMA_GIT_HASH=${VGWRDMA_GIT_HASH}

FROM source AS build-gateway
RUN scripts/container.sh build vgwrdma
RUN scripts/container.sh vendor-libs

FROM source AS build-cuobjtest-gpu
RUN scripts/container.sh build cuobjtest-gpu
RUN scripts/container.sh vendor-libs

FROM source AS build-cuobjtest-host
RUN scripts/container.sh build cuobjtest-host
RUN scripts/container.sh vendor-libs

FROM source AS ci
RUN scripts/container.sh test

FROM ${RUN_BASE} AS runtime
WORKDIR /opt/vgwrdma
COPY scripts/ scripts/
RUN scripts/container.sh runtime
USER 7070:7070

FROM runtime AS cuobjtest-gpu
COPY --from=build-cuobjtest-gpu /out/ /usr/local/
ENV LD_LIBRARY_PATH=/usr/local/lib
ENTRYPOINT ["/usr/local/bin/cuobjtest"]

FROM runtime AS cuobjtest-host
COPY --from=build-cuobjtest-host /out/ /usr/local/
ENV LD_LIBRARY_PATH=/usr/local/lib
ENTRYPOINT ["/usr/local/bin/cuobjtest"]

FROM runtime AS gateway
COPY --from=build-gateway /out/ /usr/local/
# Served: a volume or a folder of the host that the user 7070 may write.
VOLUME ["/data"]
ENV LD_LIBRARY_PATH=/usr/local/lib VGW_HEALTH=/health
EXPOSE 7070
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["curl", "-fsS", "http://127.0.0.1:7070/health"]
ENTRYPOINT ["/usr/local/bin/vgwrdma"]
CMD ["posix", "/data"]
