package lexical

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// dataDir is the folder of suites and samples, which is not part of the
// repository; the test is skipped without it.
func dataDir(t *testing.T) string {
	dir := os.Getenv("SIDECAR_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv("SIDECAR_REQUIRE_DATA") == "1" {
			t.Fatal(err)
		}
		t.Skip("no test data: ", err)
	}
	return dir
}

// The official suite's format tests, of every draft, all of them.
func TestFormatSuite(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(dataDir(t), "schemas/json-schema-test-suite/tests/*/optional/format/*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no format tests: ", err)
	}
	asked := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var groups []struct {
			Schema struct{ Format string }
			Tests  []struct {
				Description string
				Data        any
				Valid       bool
			}
		}
		if err := json.Unmarshal(data, &groups); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			p, ok := Format(g.Schema.Format)
			if !ok {
				if g.Schema.Format != "unknown" {
					t.Errorf("%s: no format %q", file, g.Schema.Format)
				}
				continue
			}
			for _, c := range g.Tests {
				text, is := c.Data.(string)
				if !is {
					continue
				}
				asked++
				if got := holds(t, p, text); got != c.Valid {
					t.Errorf("%s of %s: %q is %t: %s", g.Schema.Format, filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(file)))), text, got, c.Description)
				}
			}
		}
	}
	if asked < 500 {
		t.Errorf("%d strings asked", asked)
	}
}

// peerSeeds are strings of each format; what a few random edits make of them
// is put to santhosh-tekuri/jsonschema. That accepts more: signs before digits
// of times and addresses (Atoi), a dot after a host name and any xn-- label,
// what net/url takes for a URI, a template with odd expressions, units left out
// in the middle of a duration, which the suite all refuses; and text that isn't
// ASCII in a quoted local part, and none at all before an @. It accepts less in
// three places: a backslash in a quoted local part, templates that are no URL,
// and of URIs, characters before an @ that aren't ASCII and % in a host.
var peerSeeds = map[string]struct {
	same  bool // no difference
	texts []string
}{
	"date":                  {true, []string{"2024-02-29", "1900-02-28", "2000-02-29", "2023-12-31"}},
	"time":                  {false, []string{"23:59:60Z", "08:30:06.283185+00:20", "01:29:60+01:30", "00:29:60-23:30", "12:34:56-00:00"}},
	"date-time":             {false, []string{"1998-12-31T23:59:60Z", "1990-12-31t15:59:50.123-08:00"}},
	"duration":              {false, []string{"P4DT12H30M5S", "P2W", "P1Y2M3DT4H5M6S", "PT1H2M3S"}},
	"email":                 {false, []string{"joe.bloggs@example.com", `"joe bloggs"@example.com`, "joe@[127.0.0.1]", "joe@[IPv6:::1]", "a+b@x-y.z"}},
	"hostname":              {false, []string{"www.example.com", "a-b.c", "xn--9n2bp8q.xn--9t4b11yi5a"}},
	"ipv4":                  {false, []string{"127.0.0.1", "255.255.255.255", "1.20.03.4"}},
	"ipv6":                  {true, []string{"1:2:3:4:5:6:7:8", "::1", "1::d6:192.168.0.1", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4", "1::"}},
	"uri":                   {false, []string{"http://foo.bar/?baz=qux#quux", "urn:a:b", "ldap://[2001:db8::7]/c=GB?x", "http://u:p@h:80/a%20b"}},
	"uri-reference":         {false, []string{"//foo.bar/?baz=qux#quux", "/abc", "abc", "#frag", "a:b", "./a:b"}},
	"iri":                   {false, []string{"http://ƒøø.ßår/?∂éœ=πîx#πîüx"}},
	"iri-reference":         {false, []string{"//ƒøø.ßår/?∂éœ=πîx#πîüx", "âππ"}},
	"uri-template":          {false, []string{"/dictionary/{term:1}/{term}", "/{+x*,y}"}},
	"uuid":                  {true, []string{"2eb8aa08-AA98-11ea-B4Aa-73B441D16380"}},
	"json-pointer":          {true, []string{"/foo/bar~0/baz~1/%a", ""}},
	"relative-json-pointer": {true, []string{"1/0/baz", "0#", "120/foo~1"}},
}

// wider has the characters of texts that the peer alone refuses.
var wider = map[string]string{"email": `\`, "uri": "@%", "uri-reference": "@%", "iri": "@%", "iri-reference": "@%", "uri-template": ":{}%[]"}

func TestFormatPeer(t *testing.T) {
	for format, c := range peerSeeds {
		compiler := jsonschema.NewCompiler()
		compiler.AssertFormat()
		if err := compiler.AddResource("format.json", map[string]any{"format": format}); err != nil {
			t.Fatal(err)
		}
		peer := compiler.MustCompile("format.json")
		p, _ := Format(format)
		s, err := NewStrings([]Predicate{p}, nil, Limits{Bytes: 1 << 28, Work: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		accepted := 0
		random := rand.New(rand.NewPCG(1, 2))
		for range 4000 {
			text := []rune(c.texts[random.IntN(len(c.texts))])
			for range random.IntN(4) {
				const others = "0123456789abcfz:.-+/TZ@[]%~ #PYMWDHS\"\\{}é_*,"
				other := []rune(others)[random.IntN(len([]rune(others)))]
				at := random.IntN(len(text) + 1)
				switch kind := random.IntN(3); {
				case kind == 0 && at < len(text):
					text = slices.Delete(text, at, at+1)
				case kind == 1:
					text = slices.Insert(text, at, other)
				case at < len(text):
					text[at] = other
				}
			}
			q := read(s, quote(string(text)))
			if !s.Closed(q) {
				t.Fatalf("%s: %q: %v", format, string(text), s.Limit())
			}
			ours, theirs := s.Truth(q).Has(0), peer.Validate(string(text)) == nil
			if ours {
				accepted++
			}
			if ours == theirs {
				continue
			}
			if c.same || ours && !strings.ContainsAny(string(text), wider[format]) {
				t.Errorf("%s: %q is %t, peer %t", format, string(text), ours, theirs)
			}
		}
		if accepted < 400 {
			t.Errorf("%s: %d of 4000 accepted", format, accepted)
		}
	}
}

// Every minute of a day at every offset that leads to 23:59 UTC, and those
// beside it.
func TestLeapSeconds(t *testing.T) {
	p, _ := Format("time")
	s, err := NewStrings([]Predicate{p}, nil, Limits{Bytes: 1 << 28})
	if err != nil {
		t.Fatal(err)
	}
	for off := -1439; off <= 1439; off++ {
		for _, at := range []int{1438 + off, 1439 + off, 1440 + off} {
			at = (at + 2*1440) % 1440
			text := fmt.Sprintf("%02d:%02d:60%c%02d:%02d", at/60, at%60, "+-"[b2i(off < 0)], max(off, -off)/60, max(off, -off)%60)
			q := read(s, quote(text))
			if want := (at-off+2*1440)%1440 == 1439; !s.Closed(q) || s.Truth(q).Has(0) != want {
				t.Errorf("%s is not %t", text, want)
			}
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestLeapSecond: second 60 is where it is 23:59 in UTC, whatever the offset.
func TestLeapSecond(t *testing.T) {
	p, _ := Format("date-time")
	s, err := NewStrings([]Predicate{p}, nil, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * 60
	for at := 0; at < day; at += 61 {
		for off := -day + 1; off < day; off++ {
			if off%29 != 0 && (at-off+day)%day != day-1 {
				continue
			}
			for _, seconds := range []string{"60", "59", "60.5"} {
				offset := fmt.Sprintf("%+03d:%02d", off/60, max(off, -off)%60)
				if off > -60 && off < 0 {
					offset = "-" + offset[1:]
				}
				text := fmt.Sprintf("2016-12-31T%02d:%02d:%s%s", at/60, at%60, seconds, offset)
				want := seconds == "59" || (at-off+day)%day == day-1
				if q := read(s, quote(text)); s.Truth(q).Has(0) != want {
					t.Errorf("%s: %v", text, !want)
				}
			}
		}
	}
}
