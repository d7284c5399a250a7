package evloop

// hangupsReported: epoll tells of a reset though nothing was asked for; kqueue does not.
const hangupsReported = false
