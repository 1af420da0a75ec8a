package export_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"federator.dev/federator/internal/export"
	"federator.dev/federator/internal/rows"
)

func Example() {
	in, err := rows.NewReader(strings.NewReader(`{"kind":"RowList","metadata":{"resourceVersion":"7"},"objects":"Node","columns":[{"name":"name","type":"string"},{"name":"memory","type":"quantity"}],"members":["fleet/eu-1"]}
{"cells":["worker-1","64Ki"]}
{"end":{"rows":1}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	var out bytes.Buffer
	summary, err := export.Write(context.Background(), &out, export.Options{Format: export.NDJSON}, text{in, "nodes", new(int)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(&out)
	fmt.Println(summary.Rows, "row at revision", summary.Revision)
	// Output:
	// {"name":"worker-1","memory":"64Ki","memory_number":65536}
	// 1 row at revision 7
}
