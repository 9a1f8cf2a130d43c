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

// A gate lets one goroutine wait for another and for the client of a
// connection at the same time, without a third.
type gate struct {
	conn   *clientConn // nil if it can't be watched
	opened chan struct{}
	isOpen atomic.Bool
}

func (g *gate) init(conn net.Conn) {
	g.opened = make(chan struct{})
	if c, ok := conn.(*clientConn); ok {
		g.conn = c
		c.SetReadDeadline(time.Time{}) // that of the request, which has been read
	}
}

// open is called once.
func (g *gate) open() {
	g.isOpen.Store(true)
	if g.conn != nil {
		g.conn.SetReadDeadline(aLongTimeAgo) // before wait goes on and takes it back
	}
	close(g.opened)
}

// wait returns when the gate is open. Before, it calls gone if the client
// closes the connection.
func (g *gate) wait(gone func()) {
	if g.conn != nil {
		g.conn.untilHungUp(&g.isOpen, gone)
	}
	<-g.opened
	if g.conn != nil {
		g.conn.SetReadDeadline(time.Time{})
	}
}

// untilHungUp returns when the client has closed the connection, having called
// gone, or when the read deadline passes or stopped is set at a change of the
// socket. It takes no byte from the socket, so that a request that follows on
// the connection is not lost. A client that closes its sending side alone
// counts as gone, as in net/http.
func (c *clientConn) untilHungUp(stopped *atomic.Bool, gone func()) {
	c.raw.Read(func(fd uintptr) bool {
		if stopped.Load() {
			return true
		}
		if hungUp(fd) {
			gone()
			return true
		}
		return false // wait for the next change of the socket
	})
}

// aLongTimeAgo is a read deadline that has passed.
var aLongTimeAgo = time.Unix(1, 0)

// A watcher notices that a client closes its connection in the course of a
// stream.
type watcher struct {
	conn    *clientConn
	stopped atomic.Bool
	done    chan struct{}
}

// watch calls gone, once, when the client closes conn.
func watch(conn *clientConn, gone func()) *watcher {
	w := &watcher{conn: conn, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		conn.untilHungUp(&w.stopped, gone)
	}()
	return w
}

// stop ends the watcher and waits for it: conn may be read from afterwards.
func (w *watcher) stop() {
	w.stopped.Store(true)
	w.conn.SetReadDeadline(aLongTimeAgo)
	<-w.done
	w.conn.SetReadDeadline(time.Time{})
}
