package toolname

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func TestWords(t *testing.T) {
	for name, want := range map[string]string{
		"get_user": "get user", "searchFlights": "search flights", "HTTPCode": "http code", "getHTTPResponse": "get http response", "sha256Sum": "sha256 sum",
		"crm__list-contacts.v2": "crm list contacts v2", "ID": "id", "userIDs": "user i ds", "": "", "__": "", "größeÄndern": "größe ändern",
		"a, 'b' or c": "a b or c", "搜索 files": "搜 索 files", "x2Y": "x2 y", "Über": "über",
	} {
		if got := Words(name); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestWordsKeepAll: no letter or digit is lost, and words of words are themselves.
func TestWordsKeepAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune("aAbBzZ019_- .é中ひ")), rapid.Rune())).Draw(t, "s")
		words := Words(s)
		kept := strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) {
				return r
			}
			return -1
		}, s)
		if got := strings.Join(words, ""); got != strings.ToLower(kept) && len([]rune(got)) < len([]rune(kept)) {
			t.Fatalf("%q: %q", s, words)
		}
		for _, w := range words {
			if w == "" || strings.ContainsAny(w, "_- .") {
				t.Fatalf("%q: %q", s, words)
			}
		}
	})
}

func TestEffectOf(t *testing.T) {
	for name, want := range map[string]Effect{
		"get_user": Reads, "weather_forecast": Reads, "getPost": Reads, "search_orders": Reads,
		"create_user": Changes, "read_or_create": Changes, "getOrCreateUser": Changes,
		"send_email": Acts, "list_and_send_email": Acts, "searchAndBookFlight": Acts, "fetch_then_publish": Acts,
		"delete_user": Destroys, "get_and_delete_user": Destroys, "users_purge": Destroys, "delete2": Destroys, "v2delete3x": Destroys, "HTTPExec": Destroys, "list_and_wipe": Destroys,
		"frobnicate": 0, "": 0, "exchange_rate": 0, "rates_and_send": Acts, "salt_and_list_pepper": 0,
	} {
		if got := EffectOf(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// TestVerbsOnce: a verb has one effect.
func TestVerbsOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, list := range append(verbs[:], losing) {
		for w := range list {
			if seen[w] {
				t.Errorf("%s stands twice", w)
			}
			seen[w] = true
		}
	}
}
