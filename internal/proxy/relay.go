package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/toolsidecar/sidecar/internal/openai"
)

// relay hands the engine's reply to the client. done says that a stream is
// complete with [DONE] alone.
func (p *Proxy) relay(x *exchange, resp *http.Response, done bool) {
	defer resp.Body.Close()
	x.within(p.cfg.StallTimeout, errStalled)
	defer x.clock.Stop()
	header := make(http.Header, len(resp.Header)+1)
	endToEnd(header, resp.Header, ownReply)
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		x.engineFault(serverError(502, "engine_redirect", "The engine answered with a redirect; --engine must name its final address."))
	case resp.StatusCode == 200 && media == "text/event-stream":
		p.relayStream(x, resp, header, done)
	default:
		p.relayWhole(x, resp, header, media)
	}
}

// engineFault counts a failure of the engine and tells the client, who may be
// why it failed.
func (x *exchange) engineFault(e *openai.Error) {
	if e.Code != "client_gone" && e.Code != "draining" {
		x.p.metrics.engine.WithLabelValues(e.Code).Inc()
	}
	x.fail(e.Code, e)
}

// within starts the clock that ends the exchange with cause, instead of what
// it was last started for.
func (x *exchange) within(d time.Duration, cause error) {
	x.late.Store(&cause)
	if x.clock == nil {
		x.clock = time.AfterFunc(d, func() { x.cancel(*x.late.Load()) })
	} else {
		x.clock.Reset(d)
	}
}

// alive restarts that clock: a piece of the reply came.
func (x *exchange) alive() { x.clock.Reset(x.p.cfg.StallTimeout) }

var doneData = []byte("[DONE]")

// relayStream forwards whole events as they arrive. Status and header wait for
// the first of them, so that a failure before it keeps a status of its own.
func (p *Proxy) relayStream(x *exchange, resp *http.Response, header http.Header, needDone bool) {
	p.metrics.streams.Inc()
	defer p.metrics.streams.Dec()
	if b, ok := resp.Body.(*replyBody); ok && b.sent.read() {
		x.releaseBody()
	}
	events := openai.NewReader(resp.Body, p.cfg.MaxEvent)
	done := false
	for {
		event, err := events.Block()
		if err != nil {
			switch {
			case done:
				// What follows [DONE] has no meaning, its loss neither.
			case err == io.EOF && !needDone:
			case err == io.EOF && x.ctx.Err() == nil:
				x.engineFault(serverError(502, "engine_cut", "The engine's stream ended before its last event."))
				return
			default:
				x.engineFault(classify(context.Cause(x.ctx), err))
				return
			}
			if x.status == 0 {
				x.stream = true
				x.begin(resp.StatusCode, header)
			}
			x.complete = true
			return
		}
		if !done {
			x.alive()
		}
		switch {
		case event.Data == nil || done:
		case bytes.Equal(event.Data, doneData):
			done = true
			x.ends()
			x.within(drainTime, errStalled)
		case !openai.Valid(event.Data):
			x.engineFault(serverError(502, "engine_malformed_event", "The engine sent an event that is not JSON."))
			return
		}
		if x.status == 0 {
			x.stream = true
			if x.begin(resp.StatusCode, header) != nil {
				return
			}
		}
		if x.write(event.Raw) != nil {
			return
		}
	}
}

// relayWhole reads a reply to its end before it sends any of it.
func (p *Proxy) relayWhole(x *exchange, resp *http.Response, header http.Header, media string) {
	body, err := readReply(resp, p.cfg.MaxReply, x.alive)
	if err != nil {
		var size *replySizeError
		if errors.As(err, &size) {
			x.engineFault(serverError(502, "engine_reply_too_large", fmt.Sprintf("The engine's reply is over the limit of %d bytes (--max-reply).", size.max)))
			return
		}
		x.engineFault(classify(context.Cause(x.ctx), err))
		return
	}
	plain := resp.Header.Get("Content-Encoding") == ""
	switch status := resp.StatusCode; {
	case status >= 400:
		if status == 429 || status >= 500 {
			p.metrics.engine.WithLabelValues(fmt.Sprintf("status_%d", status)).Inc()
			x.kind = "engine_status"
		}
		if plain && !openai.Valid(body) {
			header["Content-Type"] = []string{"application/json"}
			body = wrapError(status, body)
		}
	case status == 200 && plain && media == "application/json" && !openai.Valid(body):
		x.engineFault(serverError(502, "engine_malformed_reply", "The engine sent a reply that is not a JSON object."))
		return
	}
	x.reply(resp.StatusCode, header, body)
}

// wrapError makes an OpenAI error of an engine's reply that is none.
func wrapError(status int, body []byte) []byte {
	e := serverError(status, fmt.Sprintf("engine_status_%d", status), "The engine answered "+http.StatusText(status))
	if status < 500 {
		e.Type = invalidRequest
	}
	if status == 429 {
		e.Type = "rate_limit_error"
	}
	if text := strings.ToValidUTF8(strings.TrimSpace(string(body[:min(len(body), 500)])), ""); text != "" {
		e.Message += ": " + text
	} else {
		e.Message += " without saying why."
	}
	return e.Body()
}

type replySizeError struct{ max int }

func (e *replySizeError) Error() string { return fmt.Sprintf("reply is longer than %d bytes", e.max) }

// readReply reads a reply's whole body. It calls alive for every piece.
func readReply(resp *http.Response, most int, alive func()) ([]byte, error) {
	if resp.ContentLength > int64(most) {
		return nil, &replySizeError{most}
	}
	size := 4096
	if resp.ContentLength >= 0 {
		size = int(resp.ContentLength) + 1 // room to see the end without growing
	}
	body := make([]byte, 0, size)
	for {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := resp.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if len(body) > most {
			return nil, &replySizeError{most}
		}
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
		alive()
	}
}
