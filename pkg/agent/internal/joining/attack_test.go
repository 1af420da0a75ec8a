package joining

import (
	"strings"
	"testing"
)

// TestAttack_AnOlderAgentReadsANewerAnswer: the chart says to upgrade agents after federator. Once an answer has a field more, agents of
// before cannot read it, do not renew, and a day later all of them need new tokens.
func TestAttack_AnOlderAgentReadsANewerAnswer(t *testing.T) {
	var r Response
	if err := Decode(strings.NewReader(`{"member":"edge/a","certificate":"","authorities":"","renewAfter":"2030-01-01T00:00:00Z"}`), &r); err != nil {
		t.Errorf("a field that is not known: %v", err)
	}
}
