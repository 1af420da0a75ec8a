package rows_test

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"federator.dev/federator/internal/rows"
)

func Example() {
	response := `{"kind":"RowList","apiVersion":"query.federator.dev/v1","metadata":{"resourceVersion":"7"},"objects":"Node","columns":[{"name":"name","type":"string"}],"members":["fleet/eu-1"],"notSynced":[]}
{"cells":["worker-1"]}
{"cells":["worker-2"]}
{"end":{"rows":2}}
`
	in, err := rows.NewReader(strings.NewReader(response))
	if err != nil {
		fmt.Println(err)
		return
	}
	for {
		row, err := in.Next()
		if errors.Is(err, io.EOF) {
			fmt.Println("that is all of revision", in.Header().Metadata.ResourceVersion)
			return
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s\n", row.Cells[0])
	}
	// Output:
	// "worker-1"
	// "worker-2"
	// that is all of revision 7
}
