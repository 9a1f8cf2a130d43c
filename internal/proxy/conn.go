package proxy

import (
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// A clientListener hands out clientConns.
type clientListener struct {
	*net.TCPListener
	writeTimeout time.Duration
}

func (l *clientListener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		c.Close()
		return nil, err
	}
	return &clientConn{TCPConn: c, raw: raw, writeTimeout: l.writeTimeout}, nil
}

// A clientConn is a client's connection with a deadline on every write, so
// that a reader who stalls ends his stream, and a close that lets a refusal be
// read.
type clientConn struct {
	*net.TCPConn
	raw          syscall.RawConn
	writeTimeout time.Duration
	refused      atomic.Bool // the client may still be sending what was refused
}

func (c *clientConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.writeTimeout)); err != nil {
		return 0, err
	}
	return c.TCPConn.Write(p)
}

// ReadFrom keeps io.Copy from going round Write's deadline.
func (c *clientConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

// lingerTime is how long a refused client is read from after the reply. A
// close with bytes unread resets the connection, and the reset can destroy the
// reply before the client has read it.
const lingerTime = 500 * time.Millisecond

func (c *clientConn) Close() error {
	if c.refused.Swap(false) {
		c.CloseWrite()
		c.SetReadDeadline(time.Now().Add(lingerTime))
		io.Copy(io.Discard, struct{ io.Reader }{c.TCPConn})
	}
	return c.TCPConn.Close()
}

// A watcher notices that a client has closed its connection while its request
// is being served. It takes no byte from the socket, so that a request that
// follows on the connection is not lost. A client that closes its sending side
// alone counts as gone, as in net/http.
type watcher struct {
	conn    *clientConn
	stopped atomic.Bool
	done    chan struct{}
}

// watch calls gone, once, when the client closes conn.
func watch(conn *clientConn, gone func()) *watcher {
	w := &watcher{conn: conn, done: make(chan struct{})}
	conn.SetReadDeadline(time.Time{}) // that of the request, which has been read
	go func() {
		defer close(w.done)
		conn.raw.Read(func(fd uintptr) bool {
			if w.stopped.Load() {
				return true
			}
			if hungUp(fd) {
				gone()
				return true
			}
			return false // wait for the next change of the socket
		})
	}()
	return w
}

// aLongTimeAgo is a read deadline that has passed.
var aLongTimeAgo = time.Unix(1, 0)

// stop ends the watcher and waits for it: conn may be read from afterwards.
func (w *watcher) stop() {
	w.stopped.Store(true)
	w.conn.SetReadDeadline(aLongTimeAgo)
	<-w.done
	w.conn.SetReadDeadline(time.Time{})
}
