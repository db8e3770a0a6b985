"""Paged: a batch of sequences as CSR tables over the pages of a KV pool.

    qo_indptr        int32 [seqs + 1]  rows [qo_indptr[i], qo_indptr[i+1]) are sequence i's queries
    kv_indptr        int32 [seqs + 1]  entries of kv_indices that are sequence i's pages
    kv_indices       int32 [pages]     page numbers; page p is slots [p * page_size, (p+1) * page_size)
    kv_last_page_len int32 [seqs]      tokens in a sequence's last page, 1 to page_size

The queries of a sequence are its *last* positions. A sequence may have no page: it is empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Paged:
    """The tables of one batch, all on the device of its queries.

    `kv_last_page_len` may be None where `page_size` is 1: it is all ones there.
    """

    qo_indptr: torch.Tensor
    kv_indptr: torch.Tensor
    kv_indices: torch.Tensor
    kv_last_page_len: torch.Tensor | None = None
    page_size: int = 1

    def __post_init__(self) -> None:
        tables = (self.qo_indptr, self.kv_indptr, self.kv_indices, self.kv_last_page_len)
        if any(t is not None and t.dtype != torch.int32 for t in tables):
            raise TypeError("the tables of a paged batch must be int32")
        if self.page_size < 1 or self.page_size & (self.page_size - 1):
            raise ValueError(f"page_size must be a power of two, and is {self.page_size}")
        if self.page_size > 1 and self.kv_last_page_len is None:
            raise ValueError("kv_last_page_len is needed where page_size is above 1")

    @property
    def seqs(self) -> int:
        """Sequences of the batch."""
        return self.kv_indptr.shape[0] - 1

    def kv_lens(self) -> torch.Tensor:
        """Tokens of each sequence, int32 `[seqs]`, on the tables' device."""
        pages = self.kv_indptr[1:] - self.kv_indptr[:-1]
        if self.kv_last_page_len is None:
            return pages
        full = (pages - 1) * self.page_size + self.kv_last_page_len
        return torch.where(pages > 0, full, 0).to(torch.int32)

    def slots(self, i: int) -> torch.Tensor:
        """Slots of sequence i in order, int64. Reads the tables on the host."""
        pages = self.kv_indices[int(self.kv_indptr[i]) : int(self.kv_indptr[i + 1])].long()
        step = torch.arange(self.page_size, device=pages.device)
        every = (pages[:, None] * self.page_size + step).ravel()
        return every[: int(self.kv_lens()[i])]
