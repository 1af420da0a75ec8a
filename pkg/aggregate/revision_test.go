package aggregate_test

import (
	"encoding/json"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

func TestARevisionIsAStringInJSON(t *testing.T) {
	const r = aggregate.Revision(1795298833<<32 + 7) // more than a float64 has digits for
	text, err := json.Marshal(map[string]aggregate.Revision{"revision": r})
	if err != nil || string(text) != `{"revision":"7710749774281965575"}` {
		t.Errorf("%s, %v", text, err)
	}
	var back map[string]aggregate.Revision
	if err := json.Unmarshal(text, &back); err != nil || back["revision"] != r {
		t.Errorf("read back %v, %v", back, err)
	}
	for _, bad := range []string{`""`, `"-1"`, `"1.5"`, `"18446744073709551616"`, `7`} {
		var r aggregate.Revision
		if err := json.Unmarshal([]byte(bad), &r); err == nil || r != 0 {
			t.Errorf("%s is read as %d, %v", bad, r, err)
		}
	}
}
