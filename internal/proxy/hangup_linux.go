package proxy

import "golang.org/x/sys/unix"

// hungUp says whether the peer of a socket has closed its sending side or the
// connection is broken, whatever unread bytes are before that.
func hungUp(fd uintptr) bool {
	return poll(fd, unix.POLLRDHUP) != 0
}

// poll returns which of events, or of errors, have happened on a socket.
func poll(fd uintptr, events int16) int16 {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		n, err := unix.Poll(fds[:], 0)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || n == 0:
			return 0
		}
		return fds[0].Revents
	}
}
