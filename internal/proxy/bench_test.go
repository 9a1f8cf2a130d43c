package proxy

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// BenchmarkHop is one request on a kept connection through the fiber adapter
// to an engine that answers at once, all in this process. For what is added to
// a request see sidecar bench proxy.
func BenchmarkHop(b *testing.B) {
	for _, size := range []int{1, 64, 400} {
		b.Run(fmt.Sprintf("size=%dKB", size), func(b *testing.B) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer ln.Close()
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					go answerAll(c)
				}
			}()
			_, base := start(b, "fiber", Config{Engine: "http://" + ln.Addr().String()})
			conn := dialRaw(b, base)
			conn.SetDeadline(time.Time{})
			r := bufio.NewReader(conn)
			request := []byte(rawRequest(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", size<<10) + `"}]}`))
			b.ReportAllocs()
			b.SetBytes(int64(len(request)))
			for b.Loop() {
				if _, err := conn.Write(request); err != nil {
					b.Fatal(err)
				}
				if err := skipReply(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// answerAll answers each request of a connection with wholeReply.
func answerAll(c net.Conn) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 64<<10)
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(wholeReply), wholeReply)
	for {
		if err := skipReply(r); err != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// skipReply reads over one message with a Content-Length.
func skipReply(r *bufio.Reader) error {
	n := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) <= 2 {
			_, err := r.Discard(n)
			return err
		}
		if len(line) > 15 && strings.EqualFold(string(line[:15]), "Content-Length:") {
			fmt.Sscan(string(line[15:]), &n)
		}
	}
}
