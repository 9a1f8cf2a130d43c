package store

import "testing"

// FuzzScan: of whatever bytes, records don't overlap, lie within them, and what is
// no record is counted.
func FuzzScan(f *testing.F) {
	r := record{put: true, length: 5, time: 7}
	whole := append(append(make([]byte, segmentHead), r.appendHead(nil)...), "hello"...)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(append(append([]byte(nil), whole...), "rubbish put\n and gone"...))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		at, sum := int64(segmentHead), int64(0)
		end, bad := scan(b, func(r record) {
			if r.offset < at || r.offset+r.size() > int64(len(b)) {
				t.Errorf("a record at %d of %d bytes, after %d, in %d", r.offset, r.size(), at, len(b))
			}
			at = r.offset + r.size()
			sum += r.size()
		})
		if len(b) >= segmentHead && (end != at || sum+bad != int64(len(b)-segmentHead)) {
			t.Errorf("the end is %d, want %d; %d bytes of records and %d others of %d", end, at, sum, bad, len(b)-segmentHead)
		}
	})
}
