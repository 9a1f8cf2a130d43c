package lexical

import (
	"fmt"
	"strings"
	"sync"
)

// Format is the strings of a format that JSON Schema names; false if the name
// is none of those from draft-04 to 2020-12.
//
//	date date-time time          RFC 3339 with leap years; second 60 only where it is 23:59 UTC
//	duration                     RFC 3339 appendix A
//	email idn-email              RFC 5321 mailbox, RFC 6531 characters; 64 characters before the @, an escape as one, 254 in all
//	hostname idn-hostname        RFC 1123, 253 characters; labels of other characters by IDNA 2008 (see idn.go)
//	ipv4 ipv6                    RFC 2673 dotted quad, RFC 4291 without a zone
//	uri uri-reference            RFC 3986
//	iri iri-reference            RFC 3987
//	uri-template                 RFC 6570, apostrophes in literals as in its erratum
//	uuid                         RFC 4122
//	json-pointer relative-json-pointer   RFC 6901 and its draft
//	regex                        what Pattern would read under the u flag, backreferences too
func Format(name string) (Predicate, bool) {
	f := formats[name]
	if f == nil {
		return Predicate{}, false
	}
	return Predicate{f()}, true
}

// format is made of what the whole text must match, "" if anything, of how
// many characters it may have, -1 if any number, and of what a scan decides.
func format(name, src string, most int, s *scan) func() *predicate {
	return sync.OnceValue(func() *predicate {
		p := &predicate{}
		if src != "" {
			var err error
			if p, err = compile("^(?:" + src + ")$"); err != nil {
				panic(err)
			}
		}
		p.key, p.max, p.scan = "format "+name, most, s
		return p
	})
}

func byPattern(name, src string) func() *predicate { return format(name, src, -1, nil) }

var formats = map[string]func() *predicate{
	"date":                  byPattern("date", dateText),
	"time":                  format("time", timeText, -1, leapScan(0)),
	"date-time":             format("date-time", dateText+`[Tt]`+timeText, -1, leapScan(len("yyyy-mm-ddT"))),
	"duration":              byPattern("duration", `P(?:(?:`+durationDate+`)(?:T(?:`+durationTime+`))?|T(?:`+durationTime+`)|\d+W)`),
	"email":                 format("email", mailbox(atomChars, ` !#-\[\]-~`, hostText), 254, nil),
	"idn-email":             format("idn-email", mailbox(atomChars+`\x80-\u{10FFFF}`, ` !#-\[\]-~\x80-\u{10FFFF}`, idnText), 254, nil),
	"hostname":              format("hostname", hostText, 253, hostScan()),
	"idn-hostname":          format("idn-hostname", "", -1, idnScan()),
	"regex":                 format("regex", "", -1, regexScan()),
	"ipv4":                  byPattern("ipv4", ipv4Text),
	"ipv6":                  byPattern("ipv6", ipv6Text),
	"uri":                   byPattern("uri", uriText("", "")),
	"uri-reference":         byPattern("uri-reference", uriText("", "")+`|`+relativeText("", "")),
	"iri":                   byPattern("iri", uriText(ucsChars, privateChars)),
	"iri-reference":         byPattern("iri-reference", uriText(ucsChars, privateChars)+`|`+relativeText(ucsChars, privateChars)),
	"uri-template":          byPattern("uri-template", templateText),
	"uuid":                  byPattern("uuid", `[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`),
	"json-pointer":          byPattern("json-pointer", pointerText),
	"relative-json-pointer": byPattern("relative-json-pointer", `(?:0|[1-9]\d*)(?:#|`+pointerText+`)`),
}

const (
	dateText = `(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))` +
		`|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)`

	hourText = `(?:[01]\d|2[0-3])`
	fraction = `(?:\.\d+)?`

	second       = `\d+S`
	minute       = `\d+M(?:` + second + `)?`
	durationTime = `\d+H(?:` + minute + `)?|` + minute + `|` + second
	day          = `\d+D`
	month        = `\d+M(?:` + day + `)?`
	durationDate = `\d+Y(?:` + month + `)?|` + month + `|` + day

	octet    = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	ipv4Text = octet + `(?:\.` + octet + `){3}`
	h16      = `[0-9A-Fa-f]{1,4}`
	ls32     = `(?:` + h16 + `:` + h16 + `|` + ipv4Text + `)`
	ipv6Text = `(?:(?:` + h16 + `:){6}` + ls32 +
		`|::(?:` + h16 + `:){5}` + ls32 +
		`|(?:` + h16 + `)?::(?:` + h16 + `:){4}` + ls32 +
		`|(?:(?:` + h16 + `:){0,1}` + h16 + `)?::(?:` + h16 + `:){3}` + ls32 +
		`|(?:(?:` + h16 + `:){0,2}` + h16 + `)?::(?:` + h16 + `:){2}` + ls32 +
		`|(?:(?:` + h16 + `:){0,3}` + h16 + `)?::` + h16 + `:` + ls32 +
		`|(?:(?:` + h16 + `:){0,4}` + h16 + `)?::` + ls32 +
		`|(?:(?:` + h16 + `:){0,5}` + h16 + `)?::` + h16 +
		`|(?:(?:` + h16 + `:){0,6}` + h16 + `)?::)`

	hostLabel = `[0-9A-Za-z](?:[0-9A-Za-z\-]{0,61}[0-9A-Za-z])?`
	hostText  = hostLabel + `(?:\.` + hostLabel + `)*`
	// idnText is the shape alone, for the domain of a mailbox.
	idnLabel = `[0-9A-Za-z\x80-\u{10FFFF}](?:[0-9A-Za-z\-\x80-\u{10FFFF}]{0,61}[0-9A-Za-z\x80-\u{10FFFF}])?`
	idnText  = idnLabel + `(?:\.` + idnLabel + `)*`

	atomChars = "0-9A-Za-z!#$%&'*+\\-/=?^_`{|}~"

	pointerText = `(?:/(?:[^~/]|~[01])*)*`

	percent      = `%[0-9A-Fa-f]{2}`
	ucsChars     = `\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF` + astralChars
	astralChars  = `\u{10000}-\u{1FFFD}\u{20000}-\u{2FFFD}\u{30000}-\u{3FFFD}\u{40000}-\u{4FFFD}\u{50000}-\u{5FFFD}\u{60000}-\u{6FFFD}\u{70000}-\u{7FFFD}` + moreChars
	moreChars    = `\u{80000}-\u{8FFFD}\u{90000}-\u{9FFFD}\u{A0000}-\u{AFFFD}\u{B0000}-\u{BFFFD}\u{C0000}-\u{CFFFD}\u{D0000}-\u{DFFFD}\u{E1000}-\u{EFFFD}`
	privateChars = `\uE000-\uF8FF\u{F0000}-\u{FFFFD}\u{100000}-\u{10FFFD}`
	unreserved   = `0-9A-Za-z\-._~`
	subDelims    = `!$&'()*+,;=`

	variable     = `(?:[0-9A-Za-z_]|` + percent + `)(?:\.?(?:[0-9A-Za-z_]|` + percent + `))*(?:\*|:[1-9]\d{0,3})?`
	templateText = `(?:[!#$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~` + ucsChars + privateChars + `]|` + percent + `|\{[+#./;?&=,!@|]?` + variable + `(?:,` + variable + `)*\})*`
)

const timeText = hourText + `:[0-5]\d:(?:[0-5]\d|60)` + fraction + `(?:[Zz]|[+\-]` + hourText + `:[0-5]\d)`

// leapScan lets second 60 be where it is 23:59 in UTC alone, in a time that
// starts after skip characters. The shape is a pattern's business. As a pattern
// this would be one alternative for each minute of a day.
//
// Its state is a letter and what the letter says: s and a digit per character
// still to skip, t and the digits of hour and minute, z and them where the
// seconds begin with 6, o and the digits of an offset that are still wanted.
func leapScan(skip int) *scan {
	digits := told{runes: []rune("0123456789")}
	return &scan{
		start: "s" + strings.Repeat("1", skip),
		told: func(state string) told {
			switch state[0] {
			case 's':
				if len(state) > 1 {
					return told{}
				}
			case 'z':
				return told{runes: []rune("+-Zz")}
			}
			return digits
		},
		step: func(state string, r rune) string {
			digit := r >= '0' && r <= '9'
			switch state[0] {
			case 's':
				if len(state) > 1 {
					return state[:len(state)-1]
				}
				return "t" + string(r)
			case 't':
				switch {
				case !digit:
					return state
				case len(state) < len("thhmm"):
					return state + string(r)
				case r != '6':
					return hasPassed
				}
				return "z" + state[1:]
			case 'z':
				at := minutes(state[1:])
				switch r {
				case '+':
					return "o" + hhmm(at+1)
				case '-':
					return "o" + hhmm(minutesPerDay-1-at)
				case 'Z', 'z':
					if at == minutesPerDay-1 {
						return hasPassed
					}
					return hasFailed
				}
				return state
			}
			switch {
			case !digit:
				return state
			case rune(state[1]) != r:
				return hasFailed
			case len(state) == 2:
				return hasPassed
			}
			return "o" + state[2:]
		},
		accept: func(string) bool { return false },
	}
}

const minutesPerDay = 24 * 60

func minutes(hhmm string) int {
	return 60*(10*int(hhmm[0]-'0')+int(hhmm[1]-'0')) + 10*int(hhmm[2]-'0') + int(hhmm[3]-'0')
}

func hhmm(minutes int) string {
	minutes = (minutes + minutesPerDay) % minutesPerDay
	return fmt.Sprintf("%02d%02d", minutes/60, minutes%60)
}

func mailbox(atom, quoted, host string) string {
	return `(?:(?=[^@]{1,64}@)[` + atom + `]+(?:\.[` + atom + `]+)*|"(?:[` + quoted + `]|\\[ -~]){0,62}")@` +
		`(?:` + host + `|\[(?:` + ipv4Text + `|IPv6:` + ipv6Text + `)\])`
}

func authority(ucs string) string {
	return `(?:(?:[` + unreserved + subDelims + `:` + ucs + `]|` + percent + `)*@)?` +
		`(?:\[(?:` + ipv6Text + `|[vV][0-9A-Fa-f]+\.[` + unreserved + subDelims + `:]+)\]|(?:[` + unreserved + subDelims + ucs + `]|` + percent + `)*)` +
		`(?::\d*)?`
}

func uriText(ucs, private string) string {
	char := `(?:[` + unreserved + subDelims + `:@` + ucs + `]|` + percent + `)`
	return `[A-Za-z][0-9A-Za-z+.\-]*:(?://` + authority(ucs) + `(?:/` + char + `*)*|/(?:` + char + `+(?:/` + char + `*)*)?|` + char + `+(?:/` + char + `*)*|)` +
		uriTail(ucs, private)
}

func relativeText(ucs, private string) string {
	char := `(?:[` + unreserved + subDelims + `:@` + ucs + `]|` + percent + `)`
	first := `(?:[` + unreserved + subDelims + `@` + ucs + `]|` + percent + `)`
	return `(?://` + authority(ucs) + `(?:/` + char + `*)*|/(?:` + char + `+(?:/` + char + `*)*)?|` + first + `+(?:/` + char + `*)*|)` +
		uriTail(ucs, private)
}

func uriTail(ucs, private string) string {
	more := func(extra string) string {
		return `(?:[` + unreserved + subDelims + `:@/?` + ucs + extra + `]|` + percent + `)*`
	}
	return `(?:\?` + more(private) + `)?(?:#` + more("") + `)?`
}
