//go:build unix && !linux

package proxy

import "golang.org/x/sys/unix"

// hungUp says whether the peer of a socket has closed its sending side or the
// connection is broken. Unread bytes before that, of a pipelined request, hide
// it.
func hungUp(fd uintptr) bool {
	n, err := peek(fd)
	return err != unix.EAGAIN && (err != nil || n == 0)
}

func peek(fd uintptr) (n int, err error) {
	var b [1]byte
	for {
		n, _, err = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return n, err
		}
	}
}
