package proxy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/toolsidecar/sidecar/internal/openai"
)

// saltBytes is the length of a salt: 128 bits, in hexadecimal, which vLLM and
// SGLang take.
const saltBytes = 16

// salt puts the tenant's cache_salt into a request: vLLM and SGLang then find in
// their prefix cache only what was sent with the same salt. A salt of the client's,
// which the operator has to allow, parts the tenant's own cache further.
func (s *stages) salt(x *exchange, o *openai.Object) {
	who := tenant(x.req)
	if !s.cfg.CacheSalt {
		if s.tenants.second(who) {
			x.p.log("clients with different keys share the engine's prefix cache; --cache-salt parts it")
		}
		return
	}
	mac := hmac.New(sha256.New, s.cfg.Secret)
	fmt.Fprintf(mac, "cache salt\x00%d\x00%s\x00%s", len(who), who, text(o, "cache_salt"))
	o.Set("cache_salt", openai.AppendString(nil, hex.EncodeToString(mac.Sum(nil)[:saltBytes])))
	x.req.Body = o.Bytes()
}

// tenants notices when there is more than one.
type tenants struct {
	mu    sync.Mutex // guards what follows
	known bool
	first [sha256.Size]byte
	told  bool
}

// second says, once, that this is another tenant than the first.
func (t *tenants) second(who string) bool {
	h := sha256.Sum256([]byte(who))
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known {
		t.known, t.first = true, h
	}
	if t.told || h == t.first {
		return false
	}
	t.told = true
	return true
}
