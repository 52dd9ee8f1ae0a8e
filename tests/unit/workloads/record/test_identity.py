

def test_a_partition_of_a_topic_that_was_made_again_has_an_id_that_no_client_records():
    assert partition_mask(3, (0, 2, 5)).tolist() == [True, False, True]
    assert partition_mask(3, ()).tolist() == [False] * 3
