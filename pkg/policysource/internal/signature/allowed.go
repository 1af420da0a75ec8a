package signature

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// allowedSigner is a line in an allowed signers file.
type allowedSigner struct {
	principals    string
	key           ssh.PublicKey
	after, before time.Time // zero: no limit
	gitNamespace  bool      // the namespace git is allowed
}

// parseAllowedSigners parses an allowed signers file: each line has principals, optional
// options, a key and an optional comment.
func parseAllowedSigners(data []byte) ([]allowedSigner, error) {
	var out []allowedSigner
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		a, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		return nil, errors.New("no key found")
	}
	return out, nil
}

func parseLine(line string) (allowedSigner, error) {
	a := allowedSigner{gitNamespace: true}
	principals, rest, ok := cutField(line)
	if !ok || rest == "" {
		return a, errors.New("principals are missing before the key")
	}
	a.principals = strings.Trim(principals, `"`)
	// The rest is in the format of authorized_keys.
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(rest))
	if err != nil {
		return a, errors.New("the key is invalid")
	}
	if err := checkKey(key); err != nil {
		return a, err
	}
	a.key = key
	for _, o := range options {
		if err := a.option(o); err != nil {
			return a, err
		}
	}
	return a, nil
}

// cutField splits the first field, which may be quoted, from a line.
func cutField(line string) (field, rest string, ok bool) {
	quoted := false
	for i, r := range line {
		switch {
		case r == '"':
			quoted = !quoted
		case (r == ' ' || r == '\t') && !quoted:
			return line[:i], strings.TrimSpace(line[i:]), true
		}
	}
	return line, "", false
}

func (a *allowedSigner) option(o string) error {
	name, value, _ := strings.Cut(o, "=")
	value = strings.Trim(value, `"`)
	var err error
	switch strings.ToLower(name) {
	case "namespaces":
		a.gitNamespace = false
		for pattern := range strings.SplitSeq(value, ",") {
			a.gitNamespace = a.gitNamespace || pattern == namespace || pattern == "*"
		}
	case "valid-after":
		a.after, err = parseTime(value)
	case "valid-before":
		a.before, err = parseTime(value)
	default: // including cert-authority
		return fmt.Errorf("the option %.40q is not supported", name)
	}
	return err
}

// parseTime parses YYYYMMDD[Z] and YYYYMMDDHHMM[SS][Z]. Without a Z, OpenSSH uses local
// time; here all are UTC.
func parseTime(s string) (time.Time, error) {
	text := strings.TrimSuffix(s, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(text) == len(layout) {
			if t, err := time.Parse(layout, text); err == nil {
				return t, nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("%.40q is not a time in the format YYYYMMDD[HHMM[SS]]", s)
}
