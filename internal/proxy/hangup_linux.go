package proxy

import "golang.org/x/sys/unix"

// hungUp says whether the peer of a socket has closed its sending side or the
// connection is broken, whatever unread bytes are before that.
func hungUp(fd uintptr) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	for {
		n, err := unix.Poll(fds[:], 0)
		if err == unix.EINTR {
			continue
		}
		return err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	}
}
