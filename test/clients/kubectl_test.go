package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// cellEnd is between the cells of a line.
const cellEnd = " | "

// kubectl runs kubectl; what it refuses is an answer, too.
func (t *target) kubectl(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	args = t.named(args)
	stdout, stderr, err = t.run(ctx, t.rig.bin, args...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return stdout, stderr, nil
	}
	return stdout, stderr, err
}

var placeholder = regexp.MustCompile(`\{(shop|depot|nowhere|node-1|disk-1|fast|sees-pods)\}`)

// named returns arguments with the target's names: {name} is how a namespace, or a
// cluster-scoped object, of the home site is called there.
func (t *target) named(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		a = strings.ReplaceAll(a, "{settings.yaml}", filepath.Join(t.rig.dir, "settings.yaml"))
		out[i] = placeholder.ReplaceAllStringFunc(a, func(s string) string { return t.key(home, s[1:len(s)-1]) })
	}
	return out
}

// tables runs kubectl and reads what it prints as tables.
func tables(args ...string) act {
	return func(ctx context.Context, t *target) (answer, error) {
		stdout, stderr, err := t.kubectl(ctx, args...)
		if err != nil {
			return answer{}, err
		}
		var out answer
		out.table = strings.Contains(stdout, "CLUSTER ") // not of those that kubectl makes itself
		var texts []string
		for part := range strings.SplitSeq(strings.TrimSpace(stdout), "\n\n") {
			if part == "" {
				continue
			}
			header, lines := cells(part)
			out.lines = append(out.lines, lines...)
			texts = append(texts, fmt.Sprintf("%d × %s", len(lines), strings.Join(header, " ")))
		}
		out.text = with(strings.Join(texts, "; "), stderr)
		return out, nil
	}
}

// with returns a text with what was written to standard error, if anything was.
func with(text, stderr string) string {
	if stderr = brief(stderr); stderr == "" {
		return code(text)
	} else if text == "" {
		return code(stderr)
	}
	return code(text) + ", " + code(stderr)
}

func code(text string) string {
	if text == "" {
		return "nothing"
	}
	return "`" + text + "`"
}

// brief returns text on one line, without what differs from run to run. What is said of
// names that are ambiguous is long, and of Events comes with each description: both have
// rows of their own.
func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	for _, c := range changing {
		text = c.what.ReplaceAllString(text, c.by)
	}
	return strings.TrimSpace(text)
}

var changing = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`is ambiguous, 3 members have it: .*? -o yaml`), "is ambiguous, 3 members have it: …"},
	{regexp.MustCompile(`Warning: Event is partially stored: .*?\)( Warning|$)`), "$1"},
	{regexp.MustCompile(`https://127\.0\.0\.1:\d+`), "https://…"},
	{regexp.MustCompile(`X509SHA256=[0-9a-f]+`), "X509SHA256=…"},
	{regexp.MustCompile(`"/[^" ]*/settings\.yaml"`), `"settings.yaml"`},
	{regexp.MustCompile(`created-\w+-\d+`), "created-…"},
	{regexp.MustCompile(`resource version \d{9,}`), "resource version …"},
	{regexp.MustCompile(`\beyJ[\w.-]+`), "a token"},
}

// volatile are columns whose cells no two answers have in common.
var volatile = map[string]bool{"AGE": true, "LAST SEEN": true}

var column = regexp.MustCompile(`\S+( \S+)*`)

// cells reads a table that kubectl has printed: its header, and its rows without cells
// that are volatile.
func cells(text string) (header, lines []string) {
	rows := strings.Split(text, "\n")
	at := column.FindAllStringIndex(rows[0], -1)
	for _, c := range at {
		header = append(header, rows[0][c[0]:c[1]])
	}
	for _, r := range rows[1:] {
		var line []string
		for i, c := range at {
			end := len(r)
			if i+1 < len(at) {
				end = min(end, at[i+1][0])
			}
			if cell := strings.TrimSpace(r[min(c[0], end):end]); !volatile[header[i]] {
				line = append(line, cell)
			}
		}
		if i := slices.Index(header, "CLUSTER"); i >= 0 { // kubectl puts NAMESPACE before it
			cluster := line[i]
			line = slices.Insert(slices.Delete(line, i, i+1), 0, cluster)
		}
		lines = append(lines, strings.Join(line, cellEnd))
	}
	return header, lines
}

// prints runs kubectl and takes all that it prints as it is.
func prints(args ...string) act {
	return func(ctx context.Context, t *target) (answer, error) {
		stdout, stderr, err := t.kubectl(ctx, args...)
		return answer{text: with(brief(stdout), stderr)}, err
	}
}

// described is an act that is not played at a real API server: what happens there needs
// kubelets, which the members of the test have not, or changes what other rows read.
func described(what string, do act) act {
	return func(ctx context.Context, t *target) (answer, error) {
		if t.at == real {
			return answer{text: what}, nil
		}
		return do(ctx, t)
	}
}

// follows runs kubectl until it shows what is created meanwhile on the home site.
func follows(args ...string) act {
	return func(ctx context.Context, t *target) (answer, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		cmd := t.command(ctx, t.rig.bin, t.named(args)...)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return answer{}, err
		}
		if err := cmd.Start(); err != nil {
			return answer{}, err
		}
		lines := make(chan string)
		go func() {
			defer close(lines)
			for s := bufio.NewScanner(stdout); s.Scan(); {
				lines <- s.Text()
			}
		}()
		defer func() {
			cancel()
			for range lines { // until the command has ended
			}
			_ = cmd.Wait() // it was killed
		}()
		return t.seen(ctx, lines)
	}
}

// seen creates objects until one of them is among the lines: what is created before the
// watch has begun is not.
func (t *target) seen(ctx context.Context, lines <-chan string) (answer, error) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var header string
	for {
		select {
		case <-ctx.Done():
			return answer{}, ctx.Err()
		case line, more := <-lines:
			if !more {
				return answer{}, errors.New("kubectl has ended")
			}
			if header == "" {
				header = brief(line)
			}
			if strings.Contains(line, "created-"+t.user+string(t.at)) {
				kind := ""
				if first, _, _ := strings.Cut(line, " "); first == "ADDED" || first == "DELETED" {
					kind = first + " "
				}
				return answer{text: code(header) + " and " + kind + "what is created"}, nil
			}
		case <-tick.C:
			_, remove, err := t.create(ctx)
			if err != nil {
				return answer{}, err
			}
			defer remove()
		}
	}
}

// lists runs kubectl and takes each line that it prints as an object.
func lists(args ...string) act {
	return func(ctx context.Context, t *target) (answer, error) {
		stdout, stderr, err := t.kubectl(ctx, args...)
		var out answer
		for l := range strings.Lines(stdout) {
			out.lines = append(out.lines, brief(l))
		}
		out.text = lined(len(out.lines), stderr)
		return out, err
	}
}

// lined counts lines.
func lined(n int, stderr string) string {
	if n == 0 && stderr != "" {
		return with("", stderr)
	}
	text := fmt.Sprintf("%d lines", n)
	if n == 1 {
		text = "a line"
	}
	if stderr = brief(stderr); stderr != "" {
		text += ", " + code(stderr)
	}
	return text
}

// offers runs kubectl and says which lines of the real API server's it leaves out.
func offers(args ...string) act {
	list := lists(args...)
	return func(ctx context.Context, t *target) (answer, error) {
		out, err := list(ctx, t)
		if err != nil || t.at == real {
			return out, err
		}
		at, err := t.rig.target(real, home, t.user)
		if err != nil {
			return answer{}, err
		}
		full, err := list(ctx, at)
		left := slices.DeleteFunc(full.lines, func(l string) bool { return slices.Contains(out.lines, l) })
		if len(left) > 0 {
			out.text += " without " + code(strings.Join(left, ", "))
		}
		return out, err
	}
}

// pages runs kubectl and takes its lines as a text for readers, but those that tell
// servers apart: ages, and what federator adds.
func pages(args ...string) act {
	return func(ctx context.Context, t *target) (answer, error) {
		stdout, stderr, err := t.kubectl(ctx, args...)
		var out answer
		for l := range strings.Lines(withoutOwn.ReplaceAllString(stdout, "$1\n")) {
			if l = brief(l); l != "" && l != "Annotations:" && l != "Annotations: <none>" && !strings.HasPrefix(l, "Resource Version:") {
				out.lines = append(out.lines, ages.ReplaceAllString(l, "AGE"))
			}
		}
		out.text = lined(len(out.lines), stderr)
		return out, err
	}
}

var (
	withoutOwn = regexp.MustCompile(`(?m)^(Annotations:|)\s*federator\.dev/[a-z-]+: .*\n`)
	ages       = regexp.MustCompile(`\b([0-9]+d)?([0-9]+h)?([0-9]+m)?[0-9]+s\b`)
)

// objects runs kubectl and reads the objects that it prints, in JSON or YAML.
func objects(args ...string) act {
	return func(ctx context.Context, t *target) (answer, error) {
		stdout, stderr, err := t.kubectl(ctx, args...)
		if err != nil || stdout == "" {
			return answer{text: with("", stderr)}, err
		}
		var u unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(stdout), &u.Object); err != nil {
			return answer{}, err
		}
		out, err := given(&u)
		if stderr = brief(stderr); stderr != "" {
			out.text += ", " + code(stderr)
		}
		return out, err
	}
}

// given returns the objects of a list, or an object, as an answer.
func given(u *unstructured.Unstructured) (answer, error) {
	if !u.IsList() {
		line, err := plain(u)
		return answer{text: "one " + u.GetKind(), lines: []string{line}}, err
	}
	list, err := u.ToList()
	if err != nil {
		return answer{}, err
	}
	out := answer{text: fmt.Sprintf("%s of %d", u.GetKind(), len(list.Items))}
	for i := range list.Items {
		line, err := plain(&list.Items[i])
		if err != nil {
			return answer{}, err
		}
		out.lines = append(out.lines, line)
	}
	return out, nil
}

// plain returns an object in JSON, without what no two servers have in common.
func plain(u *unstructured.Unstructured) (string, error) {
	u.SetResourceVersion("")
	u.SetManagedFields(nil)
	annotations := u.GetAnnotations()
	maps.DeleteFunc(annotations, func(k, _ string) bool { return strings.HasPrefix(k, "federator.dev/") })
	if len(annotations) == 0 {
		annotations = nil
	}
	u.SetAnnotations(annotations)
	text, err := json.Marshal(u.Object)
	return string(text), err
}
