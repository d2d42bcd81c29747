# syntax=docker/dockerfile:1
#
# Targets:
#   gateway         vgwrdma, on the software SDK, or on NVIDIA's (below)
#   cuobjtest-gpu   the client for GPU memory, on NVIDIA's cuObject client
#   cuobjtest-host  the client for host memory
#   ci              builds and tests in an image that carries the vendor's SDK
#
#   docker build --target gateway -t vgwrdma .
#   docker build --target gateway --build-context sdk=/usr --build-arg CUOBJ_PROVIDER=nvidia -t vgwrdma .
#
# Bases: Debian 12 by default; for Rocky Linux 9 give both:
#   --build-arg BUILD_BASE=docker.io/rockylinux/rockylinux:9 --build-arg RUN_BASE=docker.io/rockylinux/rockylinux:9
# NVIDIA's SDK comes as the build context `sdk`, a folder with include/ and lib/ (or lib64/); none of it is
# in this repository. Without that context the software SDK is built in.
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
ARG CUOBJ_PROVIDER=soft
ENV CUOBJ_PROVIDER=${CUOBJ_PROVIDER}
ARG CUOBJ_SDK_DIR=
ENV CUOBJ_SDK_DIR=${CUOBJ_SDK_DIR}

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
ENV LD_LIBRARY_PATH=/usr/local/lib VGW_HEALTH=/health
EXPOSE 7070
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["curl", "-fsS", "http://127.0.0.1:7070/health"]
ENTRYPOINT ["/usr/local/bin/vgwrdma"]
CMD ["posix", "/data"]
