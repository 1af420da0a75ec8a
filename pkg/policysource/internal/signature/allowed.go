package signature

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// allowed is a line of an allowed signers file.
type allowed struct {
	principals    string
	key           ssh.PublicKey
	after, before time.Time // zero: no bound
	git           bool      // the namespace git is allowed
}

// parseAllowed reads an allowed signers file: principals, perhaps options, a key
// and perhaps a comment in each line.
func parseAllowed(data []byte) ([]allowed, error) {
	var out []allowed
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
		return nil, errors.New("there is no key")
	}
	return out, nil
}

func parseLine(line string) (allowed, error) {
	a := allowed{git: true}
	principals, rest, ok := cutField(line)
	if !ok || rest == "" {
		return a, errors.New("there are no principals before the key")
	}
	a.principals = strings.Trim(principals, `"`)
	// What follows is as in authorized_keys.
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(rest))
	if err != nil {
		return a, errors.New("there is no key that can be read")
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

// cutField cuts a first field, which may be in quotes, off a line.
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

func (a *allowed) option(o string) error {
	name, value, _ := strings.Cut(o, "=")
	value = strings.Trim(value, `"`)
	var err error
	switch strings.ToLower(name) {
	case "namespaces":
		a.git = false
		for pattern := range strings.SplitSeq(value, ",") {
			a.git = a.git || pattern == namespace || pattern == "*"
		}
	case "valid-after":
		a.after, err = parseTime(value)
	case "valid-before":
		a.before, err = parseTime(value)
	default: // cert-authority among them
		return fmt.Errorf("the option %.40q is not supported", name)
	}
	return err
}

// parseTime reads YYYYMMDD[Z] and YYYYMMDDHHMM[SS][Z]. OpenSSH takes those without
// a Z as local; here all are UTC.
func parseTime(s string) (time.Time, error) {
	text := strings.TrimSuffix(s, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(text) == len(layout) {
			if t, err := time.Parse(layout, text); err == nil {
				return t, nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("%.40q is not a time as YYYYMMDD[HHMM[SS]]", s)
}
