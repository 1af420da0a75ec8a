package checkout

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// read returns an object of a type, of limited size.
func read(objects storer.EncodedObjectStorer, t plumbing.ObjectType, hash plumbing.Hash, limit int64, what string) ([]byte, error) {
	size, err := objects.EncodedObjectSize(hash)
	switch {
	case errors.Is(err, plumbing.ErrObjectNotFound):
		return nil, fail(ErrProtocol, "the %s %s of %s is missing", t, hash, what)
	case err != nil:
		return nil, fail(ErrProtocol, "the %s of %s: %v", t, what, err)
	case size > limit:
		return nil, fail(ErrLimit, "%s has %d bytes, more than %d", what, size, limit)
	}
	o, err := objects.EncodedObject(t, hash)
	if err != nil {
		return nil, fail(ErrProtocol, "the %s of %s: %v", t, what, err)
	}
	r, err := o.Reader()
	if err != nil {
		return nil, fail(ErrProtocol, "the %s of %s: %v", t, what, err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil || int64(len(data)) != size {
		return nil, fail(ErrProtocol, "the %s of %s has not the length that it declares", t, what)
	}
	return data, nil
}

// resolve peels tags to a commit, and returns the commit's tree.
func (r *Result) resolve(objects storer.EncodedObjectStorer, hash plumbing.Hash) (plumbing.Hash, error) {
	var tags []SignedObject
	for range maxNestedTags {
		if _, err := objects.EncodedObject(plumbing.TagObject, hash); err != nil {
			break // a commit, or read reports an error
		}
		data, err := read(objects, plumbing.TagObject, hash, maxMetadata, "the tag")
		if err != nil {
			return hash, err
		}
		t, err := parseTag(data)
		if err != nil {
			return hash, err
		}
		if name, ok := strings.CutPrefix(r.Ref, "refs/tags/"); ok && len(tags) == 0 && t.name != name {
			// The signature of one tag must not be used for another.
			return hash, fail(ErrContent, "the tag %q has the name %q in its object", shorten(name), shorten(t.name))
		}
		tags = append(tags, t.signed)
		hash = t.object
	}
	data, err := read(objects, plumbing.CommitObject, hash, maxMetadata, "the commit")
	if err != nil {
		return hash, err
	}
	c, err := parseCommit(data)
	if err != nil {
		return hash, err
	}
	r.Commit, r.Author, r.Committer, r.Parents = hash.String(), c.author, c.committer, c.parents
	for _, s := range append([]SignedObject{c.signed}, tags...) {
		if len(s.Signature) > 0 {
			r.Signed = append(r.Signed, s)
		}
	}
	return c.tree, nil
}

type commit struct {
	tree              plumbing.Hash
	parents           []string
	author, committer Signature
	signed            SignedObject
}

type tag struct {
	object plumbing.Hash
	name   string
	signed SignedObject
}

// header is a header of an object, with its continuation lines.
type header struct{ key, value string }

// headers splits an object into headers and message. raw has the bytes of each header.
func headers(data []byte) (list []header, raw [][]byte, message []byte, err error) {
	for {
		end := bytes.IndexByte(data, '\n')
		switch {
		case end < 0:
			return nil, nil, nil, fail(ErrContent, "a commit or tag has no message")
		case end == 0:
			return list, raw, data, nil // including the empty line
		}
		line := data[:end+1]
		data = data[end+1:]
		if line[0] == ' ' {
			if len(list) == 0 {
				return nil, nil, nil, fail(ErrContent, "a commit or tag starts with a continuation line")
			}
			last := len(list) - 1
			list[last].value += "\n" + string(line[1:end])
			raw[last] = append(raw[last][:len(raw[last]):len(raw[last])], line...)
			continue
		}
		key, value, ok := strings.Cut(string(line[:end]), " ")
		if !ok {
			return nil, nil, nil, fail(ErrContent, "a commit or tag has a header without a value")
		}
		list, raw = append(list, header{key, value}), append(raw, line)
	}
}

// parseCommit parses a commit and separates its signature as git's parse_signed_commit
// does: everything except the header gpgsig is signed.
func parseCommit(data []byte) (commit, error) {
	list, raw, message, err := headers(data)
	if err != nil {
		return commit{}, err
	}
	c := commit{signed: SignedObject{Object: "commit"}}
	seen := map[string]int{}
	for i, h := range list {
		seen[h.key]++
		switch h.key {
		case "tree":
			if i != 0 || !fullHash.MatchString(h.value) {
				return c, fail(ErrContent, "the commit's tree is not its first line, or not a hash")
			}
			c.tree = plumbing.NewHash(h.value)
		case "parent":
			if !fullHash.MatchString(h.value) {
				return c, fail(ErrContent, "a parent of the commit is not a hash")
			}
			c.parents = append(c.parents, h.value)
		case "author":
			c.author, err = parseSignature(h.value)
		case "committer":
			c.committer, err = parseSignature(h.value)
		case "gpgsig":
			c.signed.Signature = []byte(h.value + "\n")
			continue
		case "gpgsig-sha256": // of the same commit with the other hash function
			continue
		}
		if err != nil {
			return c, err
		}
		c.signed.Payload = append(c.signed.Payload, raw[i]...)
	}
	for _, key := range []string{"tree", "author", "committer"} {
		if seen[key] != 1 {
			return c, fail(ErrContent, "the commit has %d %s headers, not 1", seen[key], key)
		}
	}
	if seen["gpgsig"] > 1 {
		return c, fail(ErrContent, "the commit has two signatures")
	}
	c.signed.Payload = append(c.signed.Payload, message...)
	c.signed.When = c.committer.When
	return c, nil
}

// parseTag parses an annotated tag. Its signature is at the end of its message.
func parseTag(data []byte) (tag, error) {
	list, _, _, err := headers(data)
	if err != nil {
		return tag{}, err
	}
	t := tag{signed: SignedObject{Object: "tag", Payload: data}}
	seen := map[string]int{}
	for _, h := range list {
		seen[h.key]++
		switch h.key {
		case "object":
			if !fullHash.MatchString(h.value) {
				return t, fail(ErrContent, "the tag's object is not a hash")
			}
			t.object = plumbing.NewHash(h.value)
		case "tag":
			t.name = h.value
		case "tagger":
			who, err := parseSignature(h.value)
			if err != nil {
				return t, err
			}
			t.signed.When = who.When
		}
	}
	if seen["object"] != 1 || seen["tag"] != 1 || seen["tagger"] > 1 {
		return t, fail(ErrContent, "the tag must have one object, one name and at most one tagger")
	}
	// As git's parse_signature: the last line that starts a signature.
	at := -1
	for _, begin := range []string{"\n-----BEGIN PGP SIGNATURE-----", "\n-----BEGIN PGP MESSAGE-----", "\n-----BEGIN SSH SIGNATURE-----"} {
		at = max(at, bytes.LastIndex(data, []byte(begin)))
	}
	if at >= 0 {
		t.signed.Payload, t.signed.Signature = data[:at+1], data[at+1:]
	}
	return t, nil
}

// parseSignature parses "Name <email> seconds zone".
func parseSignature(s string) (Signature, error) {
	open, end := strings.IndexByte(s, '<'), strings.LastIndexByte(s, '>')
	if open < 0 || end < open {
		return Signature{}, fail(ErrContent, "an author or committer is not in git's format")
	}
	out := Signature{Name: printable(s[:open]), Email: printable(s[open+1 : end])}
	seconds, _, _ := strings.Cut(strings.TrimSpace(s[end+1:]), " ")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n < 0 || n > maxSeconds {
		return Signature{}, fail(ErrContent, "the time of an author or committer is not in git's format")
	}
	out.When = time.Unix(n, 0).UTC()
	return out, nil
}

const maxSeconds = 253402300799 // the year 9999, the last in RFC 3339
