package notify

import (
	"bytes"
	"encoding/base64"
)

// keyPrefix is that of a key in the form of Standard Webhooks.
const keyPrefix = "whsec_"

// ParseKeys returns the keys of a text, one per line: the bytes of the line or, after whsec_,
// what they stand for in Base64, the form that Standard Webhooks gives to receivers.
func ParseKeys(text []byte) ([][]byte, error) {
	var keys [][]byte
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if encoded, is := bytes.CutPrefix(line, []byte(keyPrefix)); is {
			decoded, err := base64.StdEncoding.AppendDecode(nil, encoded)
			if err != nil {
				return nil, &FieldError{Field: "key", Problem: "what follows " + keyPrefix + " is not Base64"}
			}
			line = decoded
		}
		keys = append(keys, bytes.Clone(line))
	}
	return keys, nil
}
