"""These modules check partitions and cells that are too large for one task in pieces, with the same findings.

A partition is cut in two ways: by offset into pieces, and by the order of writing into blocks.

    offsets           0                 1000              2000           UNBOUNDED
                      |---- piece 0 ----|---- piece 1 ----|---- piece 2 ----|
    log               a  b  c  d        e  f  g  h        i  j  k  l
    sends             a  b  c  d        e     g  h        i  j  k  l        the send of f is in no piece: it has no offset
    reads             a  b  c  d        e  f  g  h        i  x  k  l        a consumer got x where the log has j

    rows of `sends`   |---------- block ----------|---------- block ----------|   client by client, as they were written
    rows of `reads`   |------- block -------|------- block -------|-- block --|   reader by reader

    plain             a  b  c  d        e     g  h        i     k  l        one send, confirmed, and all readers agree
    residue                                f                 j              all rows of what is not plain
    kept              a        d        e     g  h        i     k  l        plain, and a kernel needs them beside the residue
    remainder         a        d        e  f  g  h        i  j  k  l        what is left: kernels check it as one partition
    left out             b  c                                               only counted: `judged` grows by them
    parts             |-- part 0: b c --|-- part 1: - ----|-- part 2: - ----|-- part 3: the remainder --|

One word for each thing:

* A **cut** is a bound between two pieces, or between two blocks (`Cuts`).
* A **piece** has all rows of `sends` and `reads` with offsets in one range, and so all that happened at an offset.
* A **block** has rows of one table that follow one another. It shows what has no offset, and what goes from piece to piece:
  how a reader stepped, when it was silent, which sends waited.
* A **look** is what one task does with one piece or one block. All have a first look. A second one has only a piece that
  something in another piece concerns, such as a further copy of one of its records.
* A record is **plain** if nothing about it can be found (`pieces`).
* The **residue** of a piece or a block has all rows that are not of plain records.
* **Kept** are the rows of plain records that a kernel needs all the same: the first and the last record of each client in a
  piece (a, d, e, h, i, l), the neighbours of what is not plain (e, g, i, k), both ends of a reader's uneven step. To keep
  more changes no finding.
* The **remainder** is the residues and the kept rows of all pieces and blocks. It is small, and the kernels of partitions
  check it, with the findings of the whole partition. What was left out adds to `judged` alone.
* A **part** is for kernels of cells that look at one record at a time: each piece without what is left of it, and the
  remainder as the last part. Together the parts have each row once.
* A **chain** (`edges`) is records of committed transactions of one part that follow one another in the log; a **seam** is the
  edge from one chain to the next one, of another part.
* A **unit** (`prozess.harness.checking.kernels`) is what an engine gives to one task: a partition, a part or a cell.
"""
